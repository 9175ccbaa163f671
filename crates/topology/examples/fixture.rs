//! A machine of files for programs that are tried by hand or by a script: `fixture NAME` prints its folder, which is there until standard
//! input ends. NAME is one of [`ALL`].

use linkspan_topology::fixture::{ALL, Fixture};

fn main() {
    let name = std::env::args().nth(1).unwrap_or_default();
    let names: Vec<&str> = ALL.iter().map(|(known, _)| *known).collect();
    let Some((_, tree)) = ALL.iter().find(|(known, _)| *known == name) else {
        eprintln!("usage: fixture {}", names.join("|"));
        std::process::exit(2);
    };
    let fixture = Fixture::tree(tree);
    println!("{}", fixture.root.display());
    // Until whoever has started it ends, or says so.
    let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
}
