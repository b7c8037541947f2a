"""Games that ask which record, or which value of a column, a training used."""
