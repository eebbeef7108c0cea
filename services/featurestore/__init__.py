"""Values by key: in SQL, or in Redis; and their history."""
