//! What is special about each front.
