"""Steps that set timestamps and advance the clock."""
