"""The recorded format of a federation: records, writer, reader."""
