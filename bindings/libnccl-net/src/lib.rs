//! The NCCL and RCCL network plugin as users load it: `libnccl-net-linkspan.so`, the same file as `librccl-net-linkspan.so`.
//!
//! Exports the symbols and says which machine the plugin sees (this one) and over which transports. All else is `linkspan-plugin`.
#![deny(unsafe_code)]

use linkspan_fabric::Fabric;

linkspan_plugin::export!(|config, log| Fabric::new(config, log, false, linkspan_transports::all()));
