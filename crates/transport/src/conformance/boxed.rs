//! Rails of transports that hand them out as boxes.

use std::sync::Arc;

use linkspan_proto::Head;
use linkspan_proto::conn::{Access, RemoteSlice};

use crate::gpu::{DeviceQueue, Gpu, GpuError};
use crate::{
    BoxRail, Busy, DeviceReach, Down, Health, MemSlice, MemoryDomain, Poll, Rail, RailInfo, Registrar, Sink, WaitFd,
};

/// A rail in a box, as a rail of one type.
pub struct Boxed(pub BoxRail);

#[allow(unsafe_code)]
// SAFETY: each call goes to the rail in the box, which keeps the promise.
unsafe impl Rail for Boxed {
    fn info(&self) -> &RailInfo {
        self.0.info()
    }

    fn ctrl(&mut self, head: &Head, body: MemSlice) -> Result<u64, Busy> {
        self.0.ctrl(head, body)
    }

    fn data(&mut self, head: &Head, src: MemSlice) -> Result<u64, Busy> {
        self.0.data(head, src)
    }

    fn prepare(&mut self, mem: MemSlice, target: bool) {
        self.0.prepare(mem, target);
    }

    fn granted(&mut self, id: u32, mem: MemSlice) {
        self.0.granted(id, mem);
    }

    fn exposed(&mut self, key: u32, mem: MemSlice, access: Access) {
        self.0.exposed(key, mem, access);
    }

    fn unexposed(&mut self, key: u32) -> bool {
        self.0.unexposed(key)
    }

    fn copy_alone(&mut self, mem: MemSlice, place: RemoteSlice, write: bool) -> bool {
        self.0.copy_alone(mem, place, write)
    }

    fn copied_by_peer(&mut self) -> [u64; 2] {
        self.0.copied_by_peer()
    }

    fn taken(&self) -> u64 {
        self.0.taken()
    }

    fn flush(&mut self) -> Result<Poll, Down> {
        self.0.flush()
    }

    fn poll(&mut self, sink: &mut dyn Sink) -> Result<Poll, Down> {
        self.0.poll(sink)
    }

    fn arm(&mut self) -> Option<WaitFd> {
        self.0.arm()
    }

    fn stalled(&mut self) -> bool {
        self.0.stalled()
    }

    fn abandon(&mut self) {
        self.0.abandon();
    }

    fn closed_by_peer(&mut self) {
        self.0.closed_by_peer();
    }

    fn health(&self) -> Health {
        self.0.health()
    }

    fn catch_up(&mut self) {
        self.0.catch_up();
    }

    fn event(&mut self) -> Option<String> {
        self.0.event()
    }

    fn registrar(&self) -> Option<Arc<dyn Registrar>> {
        self.0.registrar()
    }

    fn reach(&self) -> Option<Box<dyn DeviceReach>> {
        self.0.reach()
    }

    fn writes_devices(&self) -> bool {
        self.0.writes_devices()
    }

    fn attach(&mut self, gpu: &Arc<dyn Gpu>) -> Result<(), GpuError> {
        self.0.attach(gpu)
    }

    fn pool(&self) -> Option<(MemoryDomain, u64)> {
        self.0.pool()
    }

    fn offload(&mut self, queue: &Arc<dyn DeviceQueue>) {
        self.0.offload(queue);
    }
}
