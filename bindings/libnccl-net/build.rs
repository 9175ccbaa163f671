//! Gives the plugin the name under which NCCL asks for it: `ldconfig` makes a link of a library's own name, and one of cargo's name
//! would stay behind when the package is removed.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libnccl-net-linkspan.so");
}
