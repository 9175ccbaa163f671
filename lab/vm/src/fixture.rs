//! `fixtures`: what sysfs shows in guests, as text, for the tests of crates that read sysfs.
//!
//! One file per guest: a line for each file of sysfs, its path without the first slash, a tab, its content with line
//! breaks written as `\n`; for a link, a tab, `-> ` and its target.

use std::fs;
use std::path::Path;

use crate::cache::Cache;
use crate::cli::Words;
use crate::error::{At, Result};
use crate::guest::Guest;
use crate::lab::Lab;
use crate::run;
use crate::suite::tb;
use crate::tries::Nth;
use crate::vcable::Cable;

/// Prints everything that says what a machine has, in that form.
const DUMP: &str = include_str!("fixture.sh");

/// Writes `FOLDER/NAME/sysfs.txt` for two hosts on a cable with a soft-RoCE device each.
pub(crate) fn run(words: &Words, folder: &Path) -> Result<()> {
    let cache = Cache::open()?;
    let mut lab = Lab::new(&cache, &words.one_kernel(), &words.modules, &run::puts())?;
    for (name, options, iommu) in [("pair", &[][..], false), ("two-lanes-iommu", &["--lanes", "2"], true)] {
        lab.begin(name, Nth::First)?;
        let cable = Cable::start(&lab, &[&["--topology", "pair"], options].concat())?;
        let (mut one, mut two) = (lab.guest("a"), lab.guest("b"));
        one.ethernet(&mut two);
        for spec in [&mut one, &mut two] {
            spec.cables.push(cable.socket(&spec.name));
            spec.viommu = iommu;
        }
        let guests = lab.boot([&one, &two])?;
        for (guest, number) in guests.iter().zip(1..) {
            tb::load(guest)?;
            guest.sh(&format!(
                "ip addr add 10.8.0.{number}/24 dev lan0; ip link set lan0 up; modprobe crc32_generic; modprobe rdma_rxe &&\n\
                 rdma link add rxe0 type rxe netdev lan0"
            ))?;
        }
        let [a, b] = &guests;
        for guest in [a, b] {
            tb::found(guest)?;
        }
        tb::net(a, b)?;
        if options.contains(&"2") {
            a.until("two lanes", tb::SOON, "grep -q 2 /sys/bus/thunderbolt/devices/0-1/rx_lanes")?;
        }
        write(a, &folder.join(format!("{name}-{}", lab.kernel.name)))?;
        lab.finish(guests)?;
        cable.finish()?;
    }
    Ok(())
}

fn write(guest: &Guest, folder: &Path) -> Result<()> {
    let text = guest.sh_for(tb::SOON * 3, DUMP)?;
    fs::create_dir_all(folder).at(folder.display())?;
    let file = folder.join("sysfs.txt");
    fs::write(&file, &text).at(file.display())?;
    println!("{}: {} lines", file.display(), text.lines().count());
    Ok(())
}
