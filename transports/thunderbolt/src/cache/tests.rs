use std::os::fd::AsFd;

use linkspan_transport::{Registrar as _, StaticBuf};

use super::*;
use crate::soft::SoftRingLink;

#[test]
fn memory_of_a_device_that_is_taken_back_is_deregistered_although_the_rail_is_idle() {
    let link = SoftRingLink::new();
    let mut cache = Cache::new(&link.open(0).expect("plugged in"));
    let (memory, mut reach) = (cache.memory(), Seen::new(&cache.devices.shared));
    let buf = StaticBuf::new(1 << 16);
    let dmabuf = std::io::pipe().expect("a descriptor").0;
    memory.register_dmabuf(dmabuf.as_fd(), 0, buf.slice(), true).expect("registered");
    assert!(reach.reaches(buf.slice(), true));
    let region = Arc::downgrade(&cache.devices.find(buf.slice(), true).expect("known"));
    memory.invalidate(buf.slice());
    assert_eq!(region.strong_count(), 0, "it stays pinned");
    assert!(!reach.reaches(buf.slice(), true) && cache.devices.find(buf.slice(), true).is_none());
}
