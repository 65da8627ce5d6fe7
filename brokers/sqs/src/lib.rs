//! Amazon SQS behind the ports of Landfall.
