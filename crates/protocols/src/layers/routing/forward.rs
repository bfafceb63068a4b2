//! Forwarding round a broken link: whether a sender's messages go directly to their destination, or via
//! which forwarder.
//!
//! ```text
//!              nothing arrives for long, destination not reached
//!   Direct(to) -------------------------------------------------> Via(first forwarder)
//!       ^                                                              | nothing arrives for long
//!       |                                                              v
//!       +------------------- destination reached --------------- Via(next forwarder), in turn
//! ```

use alloc::vec::Vec;
use amcast_core::Pid;

/// The next hop of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// The destination itself.
    Direct(Pid),
    /// This forwarder.
    Via(Pid),
}

/// The route of one sender's messages to a destination.
#[derive(Clone, Copy, Debug, Default)]
pub struct RouteSelection {
    /// How many forwarders were tried; none while messages go directly.
    tried: Option<usize>,
}

impl RouteSelection {
    /// The route to `to`: direct if it is `reached`, and as long as messages are not `stuck`; else via one
    /// of the forwarders, if there are any.
    pub fn choose(
        self,
        to: Pid,
        reached: bool,
        stuck: bool,
        forwarders: impl FnOnce(Pid) -> Vec<Pid>,
    ) -> Route {
        if reached || !(stuck || self.tried.is_some()) {
            return Route::Direct(to);
        }
        let forwarders = forwarders(to);
        match forwarders.is_empty() {
            true => Route::Direct(to),
            false => Route::Via(forwarders[self.tried.unwrap_or(0) % forwarders.len()]),
        }
    }

    /// Messages are sent on this route.
    pub fn take(&mut self, route: Route) {
        self.tried = match route {
            Route::Direct(_) => None,
            Route::Via(_) => self.tried.or(Some(0)),
        };
    }

    /// Nothing arrives on the route that was taken: continues with the next forwarder. False where messages
    /// go directly.
    pub fn advance(&mut self) -> bool {
        self.tried.as_mut().map(|tried| *tried += 1).is_some()
    }
}
