"""Where functions come from: a `[[function]]` table -> something that classifies."""
