"""How far one record moves a data set's gradients."""
