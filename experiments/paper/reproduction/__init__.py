"""The reproduction of the paper: data and cases in, tables, claims and a report out."""
