"""One vocabulary for three frameworks: each module has the same functions, in its own idiom."""
