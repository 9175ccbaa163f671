//! The wire messages of a performance test, alone and in a session: a server whose client says anything, and a client
//! whose server does. Nothing panics, no side waits for a peer that is gone, and no buffer is made beyond the limit.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use linkspan_fuzz::Input;
use linkspan_perf::wire::{self, CTRL_LEN, Kind, Message, Params, Reply, TAG_CTRL};
use linkspan_perf::{
    Client, Leftovers, Limits, Link, LinkDesc, LinkError, PerfError, Quota, Spec, Stop, Test, Ticket, serve,
};
use linkspan_proto::Buf;
use linkspan_transport::MemSlice;
use zerocopy::IntoBytes;

/// What the server gives to its tests, bytes.
const MEMORY: u64 = 1 << 20;

fuzz_target!(|bytes: &[u8]| {
    decode(bytes);
    let mut input = Input::new(bytes);
    let scene = input.u8();
    let mut link = Enemy::new(input);
    if scene & 1 == 0 {
        let _ = serve(&mut link, &Limits { memory: Quota::new(MEMORY), bare: false, cma: false, ..Limits::default() });
    } else {
        let mut client = Client::new(link, Some(Duration::from_secs(2)));
        let test = [Test::Bw, Test::Lat, Test::Jitter, Test::Load][usize::from(scene >> 1 & 3)];
        let spec = Spec { stop: Stop::Messages(3), warmup: 1, load_size: 4096, ..Spec::new(test, 300) };
        let ended: Result<(), PerfError> = client.run(&spec).and_then(|_| client.close());
        drop(ended);
    }
});

fn decode(bytes: &[u8]) {
    for raw in bytes.chunks(CTRL_LEN) {
        let Ok(Message::Params(_, params)) = wire::decode(raw) else { continue };
        assert_eq!(params.as_bytes(), raw, "one request, two forms");
        if let Ok(plan) = params.plan() {
            assert!(plan.memory() > 0);
        }
    }
}

/// A link whose peer is the input. Every call costs a little of a budget, so that the story ends.
struct Enemy<'a> {
    input: Input<'a>,
    budget: usize,
    next: u64,
    receives: Vec<(u64, u32, MemSlice)>,
    leftovers: Leftovers,
}

impl<'a> Enemy<'a> {
    fn new(input: Input<'a>) -> Enemy<'a> {
        Enemy { input, budget: 3000, next: 0, receives: Vec::new(), leftovers: Leftovers::default() }
    }

    fn spend(&mut self) -> Result<(), LinkError> {
        self.budget = self.budget.saturating_sub(1);
        if self.budget > 0 {
            return Ok(());
        }
        Err(LinkError::PeerGone { path: "fuzz".into(), why: "the input has ended".into() })
    }

    /// A control message: a true one, damaged here and there.
    fn message(&mut self) -> [u8; CTRL_LEN] {
        let mut spec = Spec::new([Test::Bw, Test::Lat, Test::Jitter, Test::Load][self.input.below(4)], 64);
        spec.stop = Stop::Messages(4);
        spec.warmup = 2;
        spec.load_size = 64;
        let mut out = [0; CTRL_LEN];
        match self.input.below(8) {
            0..=2 => out.copy_from_slice(Params::new(&spec).as_bytes()),
            3 | 4 => out.copy_from_slice(Reply::new(Kind::Go).as_bytes()),
            5 => out.copy_from_slice(Reply::new(Kind::Report).as_bytes()),
            6 => out.copy_from_slice(Reply::new(Kind::Ready).as_bytes()),
            _ => out.copy_from_slice(Reply::new(Kind::GoAway).as_bytes()),
        }
        for _ in 0..self.input.below(4) {
            let at = self.input.below(CTRL_LEN);
            out[at] = self.input.u8();
        }
        out
    }
}

// SAFETY: what a test's implementation keeps of memory stays allocated until the process ends.
unsafe impl Link for Enemy<'_> {
    fn describe(&self) -> LinkDesc {
        LinkDesc::default()
    }

    fn leftovers(&self) -> Leftovers {
        self.leftovers.clone()
    }

    fn post_send(&mut self, _tag: u32, _mem: MemSlice) -> Result<Option<Ticket>, LinkError> {
        self.spend()?;
        self.next += 1;
        Ok((self.input.u8() < 250).then_some(Ticket(self.next)))
    }

    fn post_recv(&mut self, tag: u32, mem: MemSlice) -> Result<Option<Ticket>, LinkError> {
        self.spend()?;
        self.next += 1;
        self.receives.push((self.next, tag, mem));
        Ok(Some(Ticket(self.next)))
    }

    fn progress(&mut self) -> Result<bool, LinkError> {
        self.spend()?;
        Ok(!self.input.is_empty() && self.input.u8() & 1 == 0)
    }

    fn test(&mut self, ticket: Ticket) -> Result<Option<usize>, LinkError> {
        self.spend()?;
        let Some(at) = self.receives.iter().position(|r| r.0 == ticket.0) else { return Ok(Some(0)) };
        if self.input.is_empty() || self.input.u8() < 40 {
            return Ok(None);
        }
        let (_, tag, mem) = self.receives.swap_remove(at);
        if tag == TAG_CTRL {
            let len = self.input.near(CTRL_LEN as u64) as usize;
            let len = len.min(mem.len());
            let message = self.message();
            assert!(mem.fill(0, &message[..len]), "a receive of {} bytes for a control message", mem.len());
            return Ok(Some(len));
        }
        let len = (self.input.near(mem.len() as u64) as usize).min(mem.len());
        let bytes = self.input.bytes(len.min(16));
        assert!(mem.fill(0, bytes));
        Ok(Some(len))
    }

    fn wait(&mut self, _most: Duration) -> Result<(), LinkError> {
        self.spend()
    }
}
