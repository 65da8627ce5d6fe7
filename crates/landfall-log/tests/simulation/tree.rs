//! Folders and files in memory: the content of a disk, or of the image of a crash.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Component, Path};
use std::sync::Arc;

/// The identity of a folder or a file, independent of its name.
pub(crate) type NodeId = usize;

pub(crate) const ROOT: NodeId = 0;

#[derive(Debug, Clone)]
pub(crate) enum Node {
    Folder(BTreeMap<String, NodeId>),
    /// Shared between all images with the same content.
    File(Arc<Vec<u8>>),
}

/// Cheap to clone: trees share the contents of files until one changes them.
#[derive(Debug, Clone)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
}

impl Default for Tree {
    fn default() -> Self {
        Self { nodes: vec![Node::Folder(BTreeMap::new())] }
    }
}

impl Tree {
    /// Adds a node without a name.
    pub(crate) fn add(&mut self, node: Node) -> NodeId {
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// The node at `path`.
    pub(crate) fn find(&self, path: &Path) -> io::Result<NodeId> {
        let mut at = ROOT;
        for component in path.components() {
            if let Component::Normal(name) = component {
                let name = name.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
                at = *self.folder(at)?.get(name).ok_or(io::ErrorKind::NotFound)?;
            }
        }
        Ok(at)
    }

    /// The parent folder of `path`, and its name there.
    pub(crate) fn dir_entry(&self, path: &Path) -> io::Result<(NodeId, String)> {
        let parent = path.parent().ok_or(io::ErrorKind::InvalidFilename)?;
        let name = path.file_name().and_then(|name| name.to_str()).ok_or(io::ErrorKind::InvalidFilename)?;
        let parent = self.find(parent)?;
        self.folder(parent)?;
        Ok((parent, name.to_owned()))
    }

    pub(crate) fn folder(&self, node: NodeId) -> io::Result<&BTreeMap<String, NodeId>> {
        match &self.nodes[node] {
            Node::Folder(entries) => Ok(entries),
            Node::File(_) => Err(io::ErrorKind::NotADirectory.into()),
        }
    }

    pub(crate) fn folder_mut(&mut self, node: NodeId) -> &mut BTreeMap<String, NodeId> {
        match &mut self.nodes[node] {
            Node::Folder(entries) => entries,
            Node::File(_) => panic!("node {node} is not a folder"),
        }
    }

    pub(crate) fn file(&self, node: NodeId) -> io::Result<&Arc<Vec<u8>>> {
        match &self.nodes[node] {
            Node::Folder(_) => Err(io::ErrorKind::IsADirectory.into()),
            Node::File(bytes) => Ok(bytes),
        }
    }

    pub(crate) fn file_mut(&mut self, node: NodeId) -> &mut Vec<u8> {
        match &mut self.nodes[node] {
            Node::Folder(_) => panic!("node {node} is not a file"),
            Node::File(bytes) => Arc::make_mut(bytes),
        }
    }

    /// Adds the node with the id that a journal gives it.
    pub(crate) fn add_with_id(&mut self, node: NodeId, kind: Node) {
        assert_eq!(node, self.nodes.len(), "node ids are sequential");
        self.nodes.push(kind);
    }

    /// Every file that has a name, with its path.
    pub(crate) fn files(&self) -> Vec<(String, NodeId)> {
        let (mut found, mut folders) = (Vec::new(), vec![(String::new(), ROOT)]);
        while let Some((path, folder)) = folders.pop() {
            for (name, node) in self.folder(folder).into_iter().flatten() {
                let path = format!("{path}/{name}");
                match self.nodes[*node] {
                    Node::Folder(_) => folders.push((path, *node)),
                    Node::File(_) => found.push((path, *node)),
                }
            }
        }
        found.sort();
        found
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        let files = self.files();
        files.iter().map(|(_, node)| self.file(*node).map_or(0, |bytes| bytes.len() as u64)).sum()
    }

    /// Equal for trees with the same names and contents, whatever their history.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.hash_folder(ROOT, &mut hasher);
        hasher.finish()
    }

    fn hash_folder(&self, folder: NodeId, hasher: &mut DefaultHasher) {
        for (name, node) in self.folder(folder).into_iter().flatten() {
            name.hash(hasher);
            match &self.nodes[*node] {
                Node::Folder(_) => self.hash_folder(*node, hasher),
                // A checksum is enough to distinguish images, and much faster than the hasher in a debug build.
                Node::File(bytes) => (bytes.len(), crc32c::crc32c(bytes)).hash(hasher),
            }
        }
        hasher.write_u8(0xff);
    }
}
