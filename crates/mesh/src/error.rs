//! What can go wrong with a mesh.

use linkspan_topology::mesh::BadFile;

/// Why a process cannot take part in the mesh.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The mesh's own sockets or thread.
    #[error("LS1403 the mesh cannot be joined")]
    Start(#[source] std::io::Error),
    /// The declared mesh cannot be read.
    #[error("LS1404 LINKSPAN_MESH_FILE={path} cannot be read")]
    Read {
        /// The file.
        path: String,
        /// The OS error.
        #[source]
        source: std::io::Error,
    },
    /// The declared mesh cannot be understood.
    #[error("LS1405 LINKSPAN_MESH_FILE={path} is not usable")]
    File {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: BadFile,
    },
}
