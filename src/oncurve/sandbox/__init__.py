"""Where code that nobody trusts runs: a box without network, files or neighbours, with every resource limited."""
