"""SiameseXML: a Siamese text encoder with a refinement per label."""
