//! The mesh that needs no switch: nodes joined by cables of their own, what is known of them, and the ways through.
//!
//! No I/O and no clock: what neighbours tell goes into a [`Database`], a [`Graph`] comes out, [`Graph::way`] finds how to
//! reach a host, [`findings`] what is wrong with the cabling. Equal graphs give equal answers on every node.

mod database;
mod file;
mod findings;
mod graph;
mod routes;

pub use database::{Database, LINK_TIME, NODE_TIME, NODES_MAX};
pub use file::{BadFile, parse};
pub use findings::{Finding, MTU_WANTED, findings, nccl_settings};
pub use graph::{Edge, End, Fault, Graph, same_subnet};
pub use routes::{MeshLink, MeshRoute, ROUTES_MAX, Route, Target};

#[cfg(test)]
mod world;
