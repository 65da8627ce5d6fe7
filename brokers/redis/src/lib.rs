//! Redis Streams behind the ports of Landfall.
