"""Model families at their smallest, which train in seconds, with their options and configs."""
