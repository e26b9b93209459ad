"""The report: one HTML file and PNGs made from the JSON files of ./dev peers."""
