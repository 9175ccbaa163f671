//! The modules of our crates, and where a name in them leads.

use std::collections::BTreeMap;

use syn::{Item, ItemImpl, Type, UseTree};

use super::is_public;
use crate::tree::Source;

/// Deepest chain of re-exports; ours have two or three.
const DEEPEST: usize = 16;

/// Every library crate of the tree that was looked at, by its name in paths.
pub(crate) struct Crates {
    /// Modules by crate and path (`a::b`, empty for the root).
    modules: BTreeMap<(String, String), Module>,
}

struct Module {
    public: bool,
    items: Vec<Item>,
}

/// What a name stands for.
pub(crate) enum Found<'a> {
    /// A module.
    Module {
        /// Its crate.
        krate: String,
        /// Its path in it.
        path: String,
    },
    /// Anything else.
    Item {
        /// The crate that declares it.
        krate: String,
        /// The module that does.
        module: String,
        /// The declaration.
        item: &'a Item,
    },
}

impl Found<'_> {
    /// The name under which it is declared.
    pub(crate) fn name(&self) -> String {
        match self {
            Found::Module { path, .. } => path.clone(),
            Found::Item { item, .. } => name(item).unwrap_or_default(),
        }
    }
}

/// The name that an item declares.
fn name(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(i) => i.ident.to_string(),
        Item::Enum(i) => i.ident.to_string(),
        Item::Fn(i) => i.sig.ident.to_string(),
        Item::Macro(i) => i.ident.as_ref()?.to_string(),
        Item::Static(i) => i.ident.to_string(),
        Item::Struct(i) => i.ident.to_string(),
        Item::Trait(i) => i.ident.to_string(),
        Item::Type(i) => i.ident.to_string(),
        Item::Union(i) => i.ident.to_string(),
        _ => return None,
    })
}

fn visibility(item: &Item) -> bool {
    match item {
        Item::Const(i) => is_public(&i.vis),
        Item::Enum(i) => is_public(&i.vis),
        Item::Fn(i) => is_public(&i.vis),
        Item::Static(i) => is_public(&i.vis),
        Item::Struct(i) => is_public(&i.vis),
        Item::Trait(i) => is_public(&i.vis),
        Item::Type(i) => is_public(&i.vis),
        Item::Union(i) => is_public(&i.vis),
        Item::Macro(i) => i.attrs.iter().any(|a| a.path().is_ident("macro_export")),
        _ => false,
    }
}

impl Crates {
    /// Reads every crate below `crates`, `transports` and `sys` with a library.
    ///
    /// # Errors
    /// A file that is not Rust, or a module without a file.
    pub(crate) fn read(sources: &[Source]) -> Result<Crates, String> {
        let files: BTreeMap<&str, &Source> = sources.iter().map(|s| (s.path.as_str(), s)).collect();
        let mut crates = Crates { modules: BTreeMap::new() };
        for manifest in sources.iter().filter(|s| s.path.ends_with("/Cargo.toml")) {
            let folder = manifest.path.trim_end_matches("/Cargo.toml");
            let name = manifest.text.lines().find_map(|l| l.strip_prefix("name = \"")?.strip_suffix('"'));
            let root = format!("{folder}/src/lib.rs");
            let library = ["crates/", "transports/", "sys/"].iter().any(|part| folder.starts_with(part));
            if let (Some(name), true) = (name, library && files.contains_key(root.as_str())) {
                let krate = name.replace('-', "_");
                let items = parsed(files[root.as_str()])?;
                crates.add(&files, &krate, String::new(), &format!("{folder}/src"), true, items)?;
            }
        }
        Ok(crates)
    }

    fn add(
        &mut self,
        files: &BTreeMap<&str, &Source>,
        krate: &str,
        path: String,
        dir: &str,
        public: bool,
        mut items: Vec<Item>,
    ) -> Result<(), String> {
        items.retain(|item| !for_tests(item));
        for item in &items {
            let Item::Mod(module) = item else { continue };
            let name = module.ident.to_string();
            let inside = if path.is_empty() { name.clone() } else { format!("{path}::{name}") };
            let dir = format!("{dir}/{name}");
            let found = match &module.content {
                Some((_, items)) => Some(items.clone()),
                // A module elsewhere (`#[path]`) is a test's or a double's.
                None => {
                    let file = [format!("{dir}.rs"), format!("{dir}/mod.rs")];
                    file.iter().find_map(|f| files.get(f.as_str())).map(|source| parsed(source)).transpose()?
                }
            };
            if let Some(items) = found {
                self.add(files, krate, inside, &dir, is_public(&module.vis), items)?;
            }
        }
        self.modules.insert((krate.to_owned(), path), Module { public, items });
        Ok(())
    }

    fn module(&self, krate: &str, path: &str) -> Option<&Module> {
        self.modules.get(&(krate.to_owned(), path.to_owned()))
    }

    /// What a module shows to other crates, by name.
    ///
    /// # Errors
    /// A re-export that leads nowhere.
    pub(crate) fn public(&self, krate: &str, path: &str) -> Result<BTreeMap<String, Found<'_>>, String> {
        let module = self.module(krate, path).ok_or_else(|| format!("there is no module {krate}::{path}"))?;
        let mut all = BTreeMap::new();
        for item in &module.items {
            match item {
                Item::Use(u) if is_public(&u.vis) => {
                    for (name, to) in leaves(&u.tree) {
                        if name == "*" {
                            let at = self.lookup(krate, path, &to[..to.len() - 1], 0);
                            if let Some(Found::Module { krate, path }) = at {
                                all.extend(self.public(&krate, &path)?);
                                continue;
                            }
                        } else if let Some(found) = self.lookup(krate, path, &to, 0) {
                            all.insert(name, found);
                            continue;
                        }
                        return Err(format!("{krate}::{path}: pub use {} leads nowhere in the tree", to.join("::")));
                    }
                }
                Item::Mod(m) => {
                    let name = m.ident.to_string();
                    let inside = if path.is_empty() { name.clone() } else { format!("{path}::{name}") };
                    if self.module(krate, &inside).is_some_and(|module| module.public) {
                        all.insert(name, Found::Module { krate: krate.to_owned(), path: inside });
                    }
                }
                item if visibility(item) => {
                    let found = Found::Item { krate: krate.to_owned(), module: path.to_owned(), item };
                    all.insert(name(item).unwrap_or_default(), found);
                }
                _ => {}
            }
        }
        Ok(all)
    }

    /// What a path that is written in a module stands for, as far as it stays in the tree.
    fn lookup(&self, krate: &str, module: &str, to: &[String], depth: usize) -> Option<Found<'_>> {
        let (first, rest) = to.split_first()?;
        if depth > DEEPEST {
            return None;
        }
        let up = || module.rsplit_once("::").map_or("", |(up, _)| up);
        match first.as_str() {
            "crate" => self.inside(krate, "", rest, depth),
            "self" => self.inside(krate, module, rest, depth),
            "super" => self.inside(krate, up(), rest, depth),
            _ => self.inside(krate, module, to, depth).or_else(|| {
                self.module(first, "")?;
                self.inside(first, "", rest, depth)
            }),
        }
    }

    fn inside(&self, krate: &str, path: &str, to: &[String], depth: usize) -> Option<Found<'_>> {
        let Some((first, rest)) = to.split_first() else {
            return Some(Found::Module { krate: krate.to_owned(), path: path.to_owned() });
        };
        let inner = if path.is_empty() { first.clone() } else { format!("{path}::{first}") };
        if self.module(krate, &inner).is_some()
            && let Some(found) = self.inside(krate, &inner, rest, depth)
        {
            return Some(found);
        }
        for item in &self.module(krate, path)?.items {
            if rest.is_empty() && name(item).as_ref() == Some(first) {
                return Some(Found::Item { krate: krate.to_owned(), module: path.to_owned(), item });
            }
            let Item::Use(u) = item else { continue };
            for (name, mut to) in leaves(&u.tree) {
                if name == *first {
                    to.extend(rest.iter().cloned());
                } else if name == "*" {
                    to.pop();
                    to.extend([first.clone()].into_iter().chain(rest.iter().cloned()));
                } else {
                    continue;
                }
                // A module that imports itself would go round for ever.
                if let Some(found) = self.lookup(krate, path, &to, depth + 1) {
                    return Some(found);
                }
            }
        }
        None
    }

    /// What is implemented for a type in the crate that declares it, in the order of its modules.
    pub(crate) fn impls(&self, of: &Found<'_>) -> Vec<ItemImpl> {
        let Found::Item { krate, module, item } = of else { return Vec::new() };
        let Some(wanted) = name(item) else { return Vec::new() };
        let mut found = Vec::new();
        for ((_, path), inside) in self.modules.iter().filter(|((own, _), _)| own == krate) {
            for item in &inside.items {
                let Item::Impl(block) = item else { continue };
                let Type::Path(ty) = &*block.self_ty else { continue };
                let to: Vec<String> = ty.path.segments.iter().map(|s| s.ident.to_string()).collect();
                if to.last() != Some(&wanted) {
                    continue;
                }
                // Another type of the same name, elsewhere in the crate, is not meant.
                let at = self.lookup(krate, path, &to, 0);
                if matches!(at, Some(Found::Item { module: at, .. }) if at == *module) {
                    found.push(block.clone());
                }
            }
        }
        found
    }
}

fn parsed(source: &Source) -> Result<Vec<Item>, String> {
    Ok(syn::parse_file(&source.text).map_err(|e| format!("{}: {e}", source.path))?.items)
}

/// Whether an item is there for tests alone.
fn for_tests(item: &Item) -> bool {
    let attrs = match item {
        Item::Mod(i) => &i.attrs,
        Item::Impl(i) => &i.attrs,
        Item::Use(i) => &i.attrs,
        Item::Fn(i) => &i.attrs,
        Item::Struct(i) => &i.attrs,
        _ => return false,
    };
    attrs.iter().any(|a| {
        a.path().is_ident("cfg") && a.parse_args::<syn::Path>().is_ok_and(|condition| condition.is_ident("test"))
    })
}

/// The names that a `use` brings, each with the path it leads to; `*` for all of a module.
fn leaves(tree: &UseTree) -> Vec<(String, Vec<String>)> {
    match tree {
        UseTree::Path(p) => leaves(&p.tree)
            .into_iter()
            .map(|(name, mut to)| {
                to.insert(0, p.ident.to_string());
                if to.last().is_some_and(|last| last == "self") {
                    to.pop();
                    let name = if name == "self" { p.ident.to_string() } else { name };
                    return (name, to);
                }
                (name, to)
            })
            .collect(),
        UseTree::Name(n) => vec![(n.ident.to_string(), vec![n.ident.to_string()])],
        UseTree::Rename(r) => vec![(r.rename.to_string(), vec![r.ident.to_string()])],
        UseTree::Glob(_) => vec![("*".to_owned(), vec!["*".to_owned()])],
        UseTree::Group(g) => g.items.iter().flat_map(leaves).collect(),
    }
}
