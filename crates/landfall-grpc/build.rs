//! Generates the messages, clients and servers of `proto/`, and the descriptors for reflection.

use std::error::Error;
use std::path::PathBuf;

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(["landfall/v1/half_messages.proto", "landfall/v1/check_back.proto"], ["proto"])?;
    let folder = PathBuf::from(std::env::var("OUT_DIR")?);
    std::fs::write(folder.join("descriptors.bin"), descriptors.encode_to_vec())?;
    // Without tonic's own transport: a caller brings its own, such as one that refuses private addresses.
    tonic_prost_build::configure().build_transport(false).bytes(".").btree_map(".").compile_fds(descriptors)?;
    Ok(())
}
