"""Local sensitivity: the change that one record causes in a data set's gradients."""
