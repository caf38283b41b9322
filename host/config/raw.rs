//! The settings file as it is written.
