"""SiameseXML as its authors released it."""
