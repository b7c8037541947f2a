"""Reports of audits and studies, each worded for the terminal and drawn as a page."""
