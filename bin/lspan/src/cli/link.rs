//! `lspan link`: what root does once for a cable.

use clap::{Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum LinkCommand {
    /// Set every cable up: USB4STREAM devices (Linux 7.2), and an address for the interface of linkspan.ko; root or whom polkit allows, on
    /// both hosts
    ///
    /// An interface is there where the cable is in the mode network (`lspan link mode`). Both hosts come to its two IPv4 addresses, of
    /// 10.176.0.0/12, by computing them, without a message; they stay until it is unplugged.
    Up {
        /// Streams to each host: a connection takes one
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=8))]
        streams: u16,
        /// First of the HopIDs, the numbers of streams on a cable, one for each stream; the same on both hosts
        #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(8..=256))]
        first_hop: u16,
    },
    /// Allow a host to use the driver linkspan.ko
    ///
    /// Through linkspand, where it is installed: whenever it is plugged in, by root or whom polkit allows. Else until it is unplugged, by
    /// root. The UUID is what the host says of itself and proves nothing.
    Allow {
        /// UUID of the host, as `lspan status` shows it
        uuid: String,
        /// Withdraw the permission, for good
        #[arg(long)]
        deny: bool,
    },
    /// Set what the driver linkspan.ko uses the cable to a host for; the same on both hosts, as root
    ///
    /// direct: programs of linkspan, without a copy. network: a network interface (linkspan0) over all ring pairs, for every program.
    /// Until it is unplugged; `options linkspan mode=network` in /etc/modprobe.d makes it the mode of cables that are plugged in later.
    /// What the cable carries at that moment is lost.
    Mode {
        /// What the cable is for
        mode: ModeName,
        /// UUID of the host, as `lspan status` shows it
        uuid: String,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ModeName {
    /// Programs of linkspan
    Direct,
    /// A network interface
    Network,
}
