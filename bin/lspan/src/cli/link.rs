//! `lspan link`: what root does once for a cable.

use clap::{Subcommand, ValueEnum};

#[derive(Debug, Subcommand)]
pub(crate) enum LinkCommand {
    /// Set up every cable: USB4STREAM devices (Linux 7.2), and an address for the interface of linkspan.ko; run it on both hosts, as root
    /// or as a user that polkit allows
    ///
    /// A cable has an interface if it is in the mode network (`lspan link mode`). Each host computes the two IPv4 addresses, from
    /// 10.176.0.0/12, by itself, without a message; they stay until the cable is unplugged.
    Up {
        /// Streams to each host; each connection takes one
        #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=8))]
        streams: u16,
        /// First HopID (the number of a stream on a cable); each stream takes the next one; the same on both hosts
        #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u16).range(8..=256))]
        first_hop: u16,
    },
    /// Allow a host to use the driver linkspan.ko
    ///
    /// With linkspand installed, the permission lasts for every time the host is plugged in, and needs root or a user that polkit allows.
    /// Otherwise it lasts until the host is unplugged, and needs root. The host reports its UUID itself: it proves nothing.
    Allow {
        /// UUID of the host, as `lspan status` shows it
        uuid: String,
        /// Withdraw the permission permanently
        #[arg(long)]
        deny: bool,
    },
    /// Set how the driver linkspan.ko uses the cable to a host; set the same on both hosts, as root
    ///
    /// direct: programs that use linkspan, without a copy. network: a network interface (linkspan0) over all ring pairs, for every program.
    /// Lasts until the cable is unplugged; `options linkspan mode=network` in /etc/modprobe.d sets the mode for cables plugged in later.
    /// Data in flight on the cable is lost.
    Mode {
        /// How the cable is used
        mode: ModeName,
        /// UUID of the host, as `lspan status` shows it
        uuid: String,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum ModeName {
    /// Programs that use linkspan
    Direct,
    /// A network interface
    Network,
}
