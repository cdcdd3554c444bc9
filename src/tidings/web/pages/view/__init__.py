"""What every page is rendered with: templates, texts in both languages, formats, charts, forms, routing."""
