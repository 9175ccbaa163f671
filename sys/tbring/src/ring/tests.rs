use std::io::Read;

use super::*;

impl Ring {
    /// Queues and regions of no device, with a test in the place of a driver that takes entries by itself.
    pub(crate) fn over(queues: Queues, map: Map, file: OwnedFd) -> (Ring, [RingMr; 2]) {
        let ring = Ring { queues, _map: map, device: Device::new(file), threaded: true };
        let region = |id| RingMr { device: ring.device.shared.clone(), id, length: 1 << 20, registered: false };
        let regions = [region(0), region(1)];
        (ring, regions)
    }
}

#[test]
fn a_ring_that_is_dropped_closes_its_device_though_regions_and_registrars_are_there() {
    let (mut other_end, device) = std::io::pipe().unwrap();
    let device = Device::new(device.into());
    let region = RingMr { device: device.shared.clone(), id: 1, length: 4096, registered: true };
    let registrar = Registrar(device.shared.clone());
    drop(device);
    assert_eq!(other_end.read(&mut [0]).unwrap(), 0, "the other end of a closed pipe");
    let refused = registrar.register_dmabuf(other_end.as_fd(), 0, 4096, Access::Both).unwrap_err();
    assert!(matches!(refused, Error::Gone), "{refused:?}");
    assert!(region.release().is_none(), "nothing holds it any more");
}
