//! The doctor's part.
