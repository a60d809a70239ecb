"""Results for a person: printed answers, tables, charts and pages."""
