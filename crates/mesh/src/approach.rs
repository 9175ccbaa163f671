//! Reaching a host over others: dial the first mesh server, ask it to connect on, get a stream that ends where the route ends.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use linkspan_proto::login::{ClientParams, Guard};
use linkspan_proto::mesh::{LISTEN_ID, MeshReply, Request};
use linkspan_setup::logins::{LoginRun, LoginStep};
use linkspan_stream::{Dial, Options, Stream};
use linkspan_transport::{WaitFd, chain};

use super::Means;

/// A stream on its way. Poll-driven.
pub struct Approach {
    means: Means,
    request: Option<Request>,
    first: SocketAddr,
    state: State,
}

enum State {
    Dial(Dial),
    Login(Box<LoginRun>),
    Over,
}

impl Approach {
    /// Begins to reach the last of `hops` through the mesh servers before it, out of `interface` (with its address) and no other.
    pub fn start(
        means: &Means,
        interface: &str,
        from: IpAddr,
        hops: &[SocketAddr],
        limit: Duration,
    ) -> Result<Approach, String> {
        let (first, rest) = hops.split_first().ok_or("a route without hops")?;
        let request = (!rest.is_empty()).then(|| Request::Relay(rest.to_vec()));
        Approach::ask(means, interface, from, *first, request, limit)
    }

    /// Dials the mesh server `first` and asks it for something; without a request the stream is all that is wanted.
    pub fn ask(
        means: &Means,
        interface: &str,
        from: IpAddr,
        first: SocketAddr,
        request: Option<Request>,
        limit: Duration,
    ) -> Result<Approach, String> {
        // The kernel's routes must not lead it out of another port, where the same subnet may be on two cables.
        let options = Options { device: Some(interface.to_owned()), ..means.options.clone() };
        let dial = Dial::start(Some(SocketAddr::new(from, 0)), first, &options, limit).map_err(|e| chain(&e))?;
        Ok(Approach { means: means.clone(), request, first, state: State::Dial(dial) })
    }

    /// Asks the mesh server at the other end of a stream that is up already.
    pub fn over(means: &Means, stream: Stream, request: Request) -> Result<Approach, String> {
        let first = stream.peer_addr();
        let state = login(means, stream, &request)?;
        Ok(Approach { means: means.clone(), request: Some(request), first, state })
    }

    /// Moves on: the stream, and the text of the answer, once they are there.
    ///
    /// # Errors
    /// Which host refused what, or did not answer, as text for the log. It must not be polled again then.
    pub fn poll(&mut self) -> Result<Option<(Stream, String)>, String> {
        loop {
            match std::mem::replace(&mut self.state, State::Over) {
                State::Dial(mut dial) => match dial.poll() {
                    Ok(None) => {
                        self.state = State::Dial(dial);
                        return Ok(None);
                    }
                    Ok(Some(stream)) => match &self.request {
                        None => return Ok(Some((stream, String::new()))),
                        Some(request) => self.state = login(&self.means, stream, request)?,
                    },
                    Err(error) => return Err(chain(&error)),
                },
                State::Login(mut run) => match run.poll() {
                    Ok(LoginStep::Done(session)) => {
                        return match MeshReply::decode(&session.peer_blob) {
                            Some(MeshReply::Yes(text)) => Ok(Some((run.stream, text))),
                            Some(MeshReply::No(why)) => Err(format!("{} answers: {why}", self.first)),
                            None => Err(format!("{} sent an answer that no relay of a mesh sends", self.first)),
                        };
                    }
                    Ok(_) => {
                        self.state = State::Login(run);
                        return Ok(None);
                    }
                    Err(error) => return Err(format!("the relay {}: {}", self.first, chain(&error))),
                },
                State::Over => return Err("the route was given up".into()),
            }
        }
    }

    /// Adds what to sleep on.
    pub fn wait_fds(&self, fds: &mut Vec<WaitFd>) {
        match &self.state {
            State::Dial(dial) => fds.extend(dial.wait_fd().map(|(fd, _)| fd)),
            State::Login(run) => fds.push(run.wait_fd()),
            State::Over => {}
        }
    }
}

fn login(means: &Means, stream: Stream, request: &Request) -> Result<State, String> {
    let mut id = [0; 8];
    getrandom::fill(&mut id).map_err(|e| e.to_string())?;
    let params = ClientParams {
        // What passes is sealed from end to end where it must be; hops need not seal it again.
        guard: Guard::Psk { psk: means.psk.clone(), encrypt: false },
        blob: request.encode(),
        ..ClientParams::new(LISTEN_ID, means.keys.token(), u64::from_le_bytes(id), 0)
    };
    Ok(State::Login(Box::new(LoginRun::client(stream, params).map_err(|e| chain(&e))?)))
}
