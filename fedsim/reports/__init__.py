"""Pages, terminal summaries and evidence made from reports."""
