//! What the doctor looks at.
