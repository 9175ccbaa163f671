//! The services, followed in a thread of their own.

use linkspan_view::{Input, live, user};
use tokio::sync::mpsc::{Receiver, Sender, channel};

/// Most that is said or asked before it is taken in.
const QUEUE: usize = 64;

/// How they are asked.
#[derive(Clone, Debug)]
pub(crate) struct Services {
    system: Sender<live::Ask>,
    user: Sender<user::Ask>,
}

impl Services {
    /// Follows both, on the usual buses, as long as this and the receiver live.
    pub(crate) fn follow() -> std::io::Result<(Services, Receiver<Input>)> {
        let (feed, inputs) = channel(QUEUE);
        let ((system, of_system), (user, of_user)) = (channel(QUEUE), channel(QUEUE));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let both = async move {
            let of_user = tokio::spawn(user::live::follow(None, of_user, feed.clone()));
            live::follow(None, of_system, feed).await;
            let _ = of_user.await;
        };
        std::thread::Builder::new().name("services".into()).spawn(move || runtime.block_on(both))?;
        Ok((Services { system, user }, inputs))
    }

    /// The machine's. What finds no place is dropped: a person presses again.
    pub(crate) fn system(&self, ask: live::Ask) {
        let _ = self.system.try_send(ask);
    }

    /// The user's.
    pub(crate) fn user(&self, ask: user::Ask) {
        let _ = self.user.try_send(ask);
    }
}
