//! How a node gets the application's state from another one, and gives its own.
//!
//! The state of *all* groups is one cut of one node: a command over two groups must not be in one
//! part and missing in the other. It is asked for through the source's control socket
//! ([`crate::control`]), at or beyond the positions that the asker's replicas stand at.
//!
//! ```text
//! source's loop               source's control thread      asker's thread          asker's loop
//!   capture ................. "state P0 P1 .." <----------- fetch <--------------- every replica has
//!   piece, a round each ----> socket ---------------------> the first one            its place back
//!   (commands run)                                          waits for room <------- its old state goes
//!                                    ---------------------> read into a new state
//!                                                           checked against P ---> adopt, tell replicas
//! ```
//!
//! Neither loop is blocked: the source sends a bounded piece a round, and only while the receiver
//! takes them, as fast as [`crate::pace`] lets it; the receiver builds the new state apart from the
//! present one. An application with little state ([`Application::FITS_TWICE`]) reads it before the old one goes, which stays
//! where this program does not read the new one. A broken connection is made again, and the transfer resumes at its last byte
//! ([`crate::state_stream`]). A source that makes no progress for [`PROGRESS_TIMEOUT`] is given up.

use crate::clock;
use crate::node_address::NodeAddress;
use crate::pace::Pace;
use crate::priority;
use crate::state_stream::StateReader;
use amcast_core::{ClusterShape, Gid};
use amcast_smr::application::{Application, StateReadError, WakeHandle};
use amcast_smr::recovery::{FetchedState, WantedState};
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;

/// How long one side of a handover waits for the other to move.
pub(crate) const PROGRESS_TIMEOUT: Duration = Duration::from_secs(10);

/// About as many bytes are given in one round of a loop: well below a tenth of a millisecond.
const PIECE_BYTES: usize = 64 << 10;

/// Pieces that wait for the socket.
const PIECES: usize = 16;

/// The longest history of deliveries that is taken over.
const HISTORY_BYTES_MAX: u64 = 4 << 30;

/// A state on its way out.
pub(crate) struct OutgoingState {
    pace: Pace,
    to: Option<SyncSender<Vec<u8>>>,
    /// A piece for which the asker had no room.
    held: Option<Vec<u8>>,
    /// Whether the application has given all.
    whole: bool,
}

impl OutgoingState {
    /// Gives no more bytes in a second than that, at first; none for any number.
    pub(crate) const fn at_most(per_second: Option<u64>) -> Self {
        Self { pace: Pace::new(per_second), to: None, held: None, whole: false }
    }

    /// Begins to give `app`'s state as it is now. `history` goes in front of it.
    ///
    /// # Errors
    /// When it is giving already: one at a time, the other asks again.
    pub(crate) fn begin<A: Application>(
        &mut self,
        app: &mut A,
        history: &[u8],
    ) -> Result<Receiver<Vec<u8>>, String> {
        if self.to.is_some() {
            return Err("it gives its state to another node just now".to_string());
        }
        let (to, pieces) = sync_channel(PIECES);
        app.capture();
        let mut head = (history.len() as u64).to_le_bytes().to_vec();
        head.extend_from_slice(history);
        self.pace.begin(clock::now());
        (self.to, self.held, self.whole) = (Some(to), Some(head), false);
        Ok(pieces)
    }

    /// Whether a state is on its way.
    pub(crate) const fn is_going(&self) -> bool {
        self.to.is_some()
    }

    /// Gives no more: what it gives is not the state any more.
    pub(crate) fn give_up(&mut self) {
        (self.to, self.held, self.whole) = (None, None, false);
    }

    /// Gives one piece, if there is room for it and it is time. Says whether it did.
    pub(crate) fn round<A: Application>(&mut self, app: &mut A) -> bool {
        let Some(to) = &self.to else { return false };
        if self.held.is_none() && !self.whole {
            let from = clock::now();
            if !self.pace.may(from) {
                return false;
            }
            let mut piece = Vec::with_capacity(PIECE_BYTES + PIECE_BYTES / 4);
            self.whole = !app.piece(PIECE_BYTES, &mut piece);
            if piece.is_empty() && !self.whole {
                // It has nothing to give just now.
                return false;
            }
            self.pace.took(piece.len(), from, clock::now());
            self.held = Some(piece);
        }
        let Some(piece) = self.held.take() else {
            // The asker sees the end of the pieces.
            self.to = None;
            return true;
        };
        match to.try_send(piece) {
            Ok(()) => true,
            Err(TrySendError::Full(piece)) => {
                self.held = Some(piece);
                false
            }
            Err(TrySendError::Disconnected(_)) => {
                tracing::info!("the node that asked for the state is gone");
                app.release();
                self.to = None;
                true
            }
        }
    }
}

/// The other nodes of so many, in the order in which node `rank` asks them for their state: each begins with another one,
/// and who `leads` most groups has most to do and is asked last.
pub(crate) fn sources(rank: usize, nodes: usize, leads: impl Fn(usize) -> usize) -> Vec<usize> {
    let mut sources: Vec<usize> = (1..nodes).map(|i| (rank + i) % nodes).collect();
    sources.sort_by_key(|&source| leads(source));
    sources
}

/// The events of a requested state.
pub(crate) enum TransferEvent<S> {
    /// A node gives its own. The rest of it is read when the asker has made room, and says so
    /// ([`StateFetch::go_on`]).
    Comes,
    /// This node gave its own, and this program does not read it; why, for people. Other nodes are asked next.
    Unreadable { from: String, why: String },
    /// It is here, or nobody could give it.
    Ended(Option<FetchedState<S>>),
}

/// A state on its way in.
pub(crate) struct StateFetch<S> {
    news: Receiver<TransferEvent<S>>,
    /// The channel that signals room for the arriving state.
    room: SyncSender<()>,
    /// Its thread has ended without a word.
    has_panicked: bool,
}

/// Where a state that comes waits for room.
struct RoomGate<S> {
    news: SyncSender<TransferEvent<S>>,
    room: Receiver<()>,
    wake: WakeHandle,
}

impl<S> RoomGate<S> {
    /// Tells the asker's loop.
    fn tell(&self, news: TransferEvent<S>) {
        // If the node stops meanwhile nobody waits for it.
        let _ = self.news.send(news);
        (self.wake)();
    }

    /// Waits until there is room for a state that comes.
    ///
    /// # Errors
    /// When nobody waits for one any more.
    fn pass(&self) -> io::Result<()> {
        self.tell(TransferEvent::Comes);
        self.room.recv().map_err(|_| io::Error::other("the state is not wanted any more"))
    }
}

impl<S: Send + 'static> StateFetch<S> {
    /// Asks these nodes in turn, in a thread of its own, for a state that has every
    /// group at least where it is `wanted`; `wake` is called when that came to an end.
    ///
    /// # Errors
    /// When there is no thread to be had.
    pub(crate) fn begin<A: Application<State = S>>(
        cluster: ClusterShape,
        nodes: Vec<NodeAddress>,
        wanted: WantedState,
        wake: WakeHandle,
    ) -> io::Result<Self> {
        let (tells, news) = sync_channel(1);
        let (room, is_room) = sync_channel(1);
        let gate = RoomGate { news: tells, room: is_room, wake };
        let talk = move || {
            // Where there are fewer cores than work, clients wait for all others.
            priority::stand_back();
            let found = nodes.into_iter().enumerate().find_map(|(source, from)| {
                match fetch::<A>(cluster, (source, &from), &wanted, &gate) {
                    Ok(fetched) => return Some(fetched),
                    Err(StateReadError::Damaged(why)) => tracing::info!("{from}: {why}"),
                    Err(StateReadError::Rejected(why)) => {
                        gate.tell(TransferEvent::Unreadable { from: from.to_string(), why });
                    }
                }
                None
            });
            if found.is_none() {
                // Everyone else may be starting, too: not in a tight circle.
                std::thread::sleep(Duration::from_millis(20));
            }
            gate.tell(TransferEvent::Ended(found));
        };
        std::thread::Builder::new().name("fetch".to_string()).spawn(talk)?;
        Ok(Self { news, room, has_panicked: false })
    }

    /// The event since the last call, if any. A thread that panicked ends with one more, of which nothing comes.
    pub(crate) fn poll(&mut self) -> Option<TransferEvent<S>> {
        match self.news.try_recv() {
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) if self.has_panicked => {
                Some(TransferEvent::Ended(None))
            }
            Err(TryRecvError::Disconnected) => {
                self.has_panicked = true;
                let (from, why) = ("another node", "the thread that read its state panicked");
                Some(TransferEvent::Unreadable { from: from.to_string(), why: why.to_string() })
            }
            Ok(news) => Some(news),
        }
    }

    /// There is room for the state that comes.
    pub(crate) fn go_on(&self) {
        // It waits for that, or its thread has ended.
        let _ = self.room.try_send(());
    }

    /// A fetch with these events, and the channel on which it learns of room.
    #[cfg(test)]
    pub(crate) fn of(news: Receiver<TransferEvent<S>>) -> (Self, Receiver<()>) {
        let (room, is_room) = sync_channel(1);
        (Self { news, room, has_panicked: false }, is_room)
    }
}

fn fetch<A: Application>(
    cluster: ClusterShape,
    (source, at): (usize, &NodeAddress),
    wanted: &WantedState,
    gate: &RoomGate<A::State>,
) -> Result<FetchedState<A::State>, StateReadError> {
    let damaged = |why: String| Err(StateReadError::Damaged(why));
    let mut from = StateReader::of(at, wanted)?;
    let mut length = [0; 8];
    from.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > HISTORY_BYTES_MAX {
        return damaged("a history of deliveries that is longer than one can be".to_string());
    }
    let mut history = Vec::new();
    (&mut from).take(length).read_to_end(&mut history)?;
    if !A::FITS_TWICE {
        gate.pass()?;
    }
    let state = A::read(cluster.groups(), &mut from)?;
    for (g, &least) in wanted.positions.iter().enumerate() {
        let has = A::state_delivered(&state, Gid(g as u8));
        if has < least {
            return damaged(format!("its state is at {has} in g{g}, not {least}"));
        }
    }
    Ok(FetchedState { state, history, from: at.to_string(), source })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{ControlRequest, serve};
    use crate::resources::Resources;
    use amcast_smr::application::{DeliveredCommand, GroupFigures, TellAnswer};
    use std::path::{Path, PathBuf};
    use std::sync::Arc;

    /// A state of so many bytes that only a later version of the program reads.
    const OF_LATER_VERSION: usize = 13;

    /// A state of so many bytes at one position, given in pieces; of an application whose state fits twice, or not.
    struct PiecewiseState<const FITS_TWICE: bool = false> {
        position: u64,
        size: usize,
        given: usize,
        released: bool,
    }

    impl<const FITS_TWICE: bool> Application for PiecewiseState<FITS_TWICE> {
        type State = (u64, usize);

        const FITS_TWICE: bool = FITS_TWICE;

        fn deliver(&mut self, _: DeliveredCommand<'_>, _: TellAnswer<'_>) -> bool {
            true
        }

        fn applied(&self, _: Gid) -> u64 {
            self.position
        }

        fn delivered(&self, _: Gid) -> u64 {
            self.position
        }

        fn capture(&mut self) {
            self.given = 0;
        }

        fn piece(&mut self, most: usize, to: &mut Vec<u8>) -> bool {
            if self.given == 0 {
                to.extend_from_slice(&self.position.to_le_bytes());
                to.extend_from_slice(&(self.size as u64).to_le_bytes());
            }
            let now = most.min(self.size - self.given);
            to.resize(to.len() + now, 7);
            self.given += now;
            self.given < self.size
        }

        fn release(&mut self) {
            self.released = true;
        }

        fn read(_: usize, from: &mut dyn Read) -> Result<Self::State, StateReadError> {
            let mut word = || {
                let mut bytes = [0; 8];
                from.read_exact(&mut bytes)?;
                Ok::<u64, StateReadError>(u64::from_le_bytes(bytes))
            };
            let (position, size) = (word()?, word()?);
            let mut body = vec![0; size as usize];
            from.read_exact(&mut body)?;
            if body.len() == OF_LATER_VERSION {
                return Err(StateReadError::Rejected("of a later version".to_string()));
            }
            assert!(body.iter().all(|&b| b == 7));
            Ok((position, body.len()))
        }

        fn state_delivered(state: &Self::State, _: Gid) -> u64 {
            state.0
        }

        fn adopt(&mut self, state: Self::State) -> Self::State {
            (self.position, self.size) = state;
            state
        }

        fn clear(&mut self) -> Self::State {
            self.adopt((0, 0))
        }

        fn figures(&self, _: Gid) -> GroupFigures {
            GroupFigures::default()
        }
    }

    fn toy(position: u64, size: usize) -> PiecewiseState {
        PiecewiseState { position, size, given: 0, released: false }
    }

    /// A source behind a real control socket, driven here as a loop would.
    struct TransferSource {
        toy: PiecewiseState,
        giving: OutgoingState,
        requests: Receiver<ControlRequest>,
    }

    impl TransferSource {
        fn at(socket: &Path, wake: &WakeHandle, toy: PiecewiseState) -> Self {
            let (requests, _) =
                serve(socket, None, (Resources::of(None), Default::default()), Arc::clone(wake))
                    .unwrap();
            Self { toy, giving: OutgoingState::at_most(None), requests }
        }

        fn round(&mut self) -> bool {
            if let Ok(ControlRequest::State(_, reply)) = self.requests.try_recv() {
                drop(reply.try_send(self.giving.begin(&mut self.toy, b"history")));
            }
            self.giving.round(&mut self.toy)
        }
    }

    /// A directory for sockets, and who is woken.
    fn place(name: &str) -> (PathBuf, WakeHandle, ClusterShape) {
        let dir = std::env::temp_dir().join(format!("amcast-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let cluster = ClusterShape::new(1, 3, 1).unwrap();
        (dir, Arc::new(|| {}), cluster)
    }

    fn nodes(sockets: Vec<PathBuf>) -> Vec<NodeAddress> {
        sockets.into_iter().map(NodeAddress::Socket).collect()
    }

    fn wanted(least: u64) -> WantedState {
        WantedState { positions: vec![least], view: None }
    }

    /// Fetches from these sources in turn, while all of them do their rounds.
    fn fetch_from(
        sources: &mut [TransferSource],
        sockets: Vec<PathBuf>,
        least: u64,
        (wake, cluster): (WakeHandle, ClusterShape),
    ) -> Option<FetchedState<(u64, usize)>> {
        let mut fetching =
            StateFetch::begin::<PiecewiseState>(cluster, nodes(sockets), wanted(least), wake)
                .unwrap();
        loop {
            match fetching.poll() {
                Some(TransferEvent::Ended(fetched)) => return fetched,
                Some(TransferEvent::Comes) => fetching.go_on(),
                Some(TransferEvent::Unreadable { from, why }) => panic!("{from}: {why}"),
                None => {}
            }
            sources.iter_mut().for_each(|source| _ = source.round());
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_large_state_comes_whole_with_its_history() {
        let _limit = amcast_test_policy::time_limit();
        let (dir, wake, cluster) = place("large");
        let socket = dir.join("a.sock");
        let mut sources = [TransferSource::at(&socket, &wake, toy(41, 30 << 20))];
        let fetched = fetch_from(&mut sources, vec![socket.clone()], 41, (wake, cluster)).unwrap();
        assert_eq!((fetched.state, &fetched.history[..]), ((41, 30 << 20), &b"history"[..]));
        assert_eq!(fetched.from, socket.display().to_string());
        sources[0].round();
        assert!(!sources[0].giving.is_going());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn who_leads_is_asked_last() {
        let _limit = amcast_test_policy::time_limit();
        assert_eq!([0, 1, 2].map(|rank| sources(rank, 3, |_| 0)), [[1, 2], [2, 0], [0, 1]]);
        assert_eq!(sources(1, 3, |source| usize::from(source == 2)), [0, 2]);
        assert_eq!(sources(3, 5, |source| [2, 1, 0, 0, 1][source]), [2, 4, 1, 0]);
    }

    #[test]
    fn a_state_is_given_at_the_pace_and_not_faster() {
        let _limit = amcast_test_policy::time_limit();
        let (mut toy, mut giving) = (toy(5, 20 << 20), OutgoingState::at_most(Some(1)));
        let pieces = giving.begin(&mut toy, b"").unwrap();
        (0..1000).for_each(|_| _ = giving.round(&mut toy));
        // In front of it goes how long the history is.
        assert_eq!(
            (toy.given, pieces.try_iter().count()),
            (PIECE_BYTES, 2),
            "the next one is not due"
        );
        assert!(giving.is_going());
    }

    #[test]
    fn who_is_not_so_far_or_not_there_is_passed_over() {
        let _limit = amcast_test_policy::time_limit();
        let (dir, wake, cluster) = place("far");
        let sockets: Vec<_> = ["a", "b", "c"].iter().map(|n| dir.join(n)).collect();
        let mut sources = [
            TransferSource::at(&sockets[1], &wake, toy(40, 100)),
            TransferSource::at(&sockets[2], &wake, toy(42, 200)),
        ];
        let with = (wake, cluster);
        let fetched = fetch_from(&mut sources, sockets, 41, with).unwrap();
        assert_eq!(fetched.state, (42, 200));
        std::fs::remove_dir_all(dir).unwrap();
    }

    /// The events of a transfer of so many bytes, to an application whose state fits twice or not.
    fn events<const FITS_TWICE: bool>(name: &str, size: usize) -> Vec<String> {
        let (dir, wake, cluster) = place(name);
        let socket = dir.join("a.sock");
        let mut source = TransferSource::at(&socket, &wake, toy(5, size));
        let from = nodes(vec![socket.clone()]);
        let fetching =
            StateFetch::begin::<PiecewiseState<FITS_TWICE>>(cluster, from, wanted(1), wake);
        let (mut fetching, mut events) = (fetching.unwrap(), Vec::new());
        loop {
            match fetching.poll() {
                Some(TransferEvent::Comes) => {
                    events.push("comes".to_string());
                    fetching.go_on();
                }
                Some(TransferEvent::Unreadable { from, why }) => {
                    let from = from.replace(&socket.display().to_string(), "it");
                    events.push(format!("{from}: {why}"));
                }
                Some(TransferEvent::Ended(fetched)) => {
                    events.push(fetched.map_or("nothing", |_| "a state").to_string());
                    break;
                }
                None => {}
            }
            source.round();
            std::thread::yield_now();
        }
        std::fs::remove_dir_all(dir).unwrap();
        events
    }

    #[test]
    fn a_state_that_this_program_does_not_read_is_named_and_costs_a_small_application_nothing() {
        let _limit = amcast_test_policy::time_limit();
        let (of_later, read) = (OF_LATER_VERSION, OF_LATER_VERSION + 1);
        assert_eq!(events::<false>("read", read), ["comes", "a state"]);
        assert_eq!(events::<true>("read-first", read), ["a state"], "no old state goes before");
        let why = "it: of a later version";
        assert_eq!(events::<false>("later", of_later), ["comes", why, "nothing"]);
        assert_eq!(events::<true>("later-first", of_later), [why, "nothing"]);
    }

    #[test]
    fn a_reader_that_panics_is_named_too() {
        let _limit = amcast_test_policy::time_limit();
        let (tell, news) = sync_channel::<TransferEvent<()>>(1);
        let (mut fetching, _room) = StateFetch::of(news);
        assert!(fetching.poll().is_none());
        drop(tell);
        let Some(TransferEvent::Unreadable { why, .. }) = fetching.poll() else { panic!() };
        assert!(why.contains("panicked"), "{why}");
        assert!(matches!(fetching.poll(), Some(TransferEvent::Ended(None))));
    }

    #[test]
    fn a_state_that_ends_too_early_is_none() {
        let _limit = amcast_test_policy::time_limit();
        let (dir, wake, cluster) = place("early");
        let socket = dir.join("a.sock");
        let mut source = TransferSource::at(&socket, &wake, toy(5, 20 << 20));
        let sockets = vec![socket];
        let mut fetching =
            StateFetch::begin::<PiecewiseState>(cluster, nodes(sockets), wanted(1), wake).unwrap();
        while !matches!(fetching.poll(), Some(TransferEvent::Comes)) {
            source.round();
        }
        // Nothing is read before there is room for it.
        while source.round() {}
        assert!(source.toy.given < 10 << 20, "{}", source.toy.given);
        fetching.go_on();
        while source.toy.given < 10 << 20 {
            source.round();
        }
        // The source stops in the middle.
        source.giving = OutgoingState::at_most(None);
        let fetched = loop {
            if let Some(TransferEvent::Ended(fetched)) = fetching.poll() {
                break fetched;
            }
            std::thread::yield_now();
        };
        assert!(fetched.is_none());
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn one_state_is_given_at_a_time_and_released_when_its_asker_goes() {
        let _limit = amcast_test_policy::time_limit();
        let (mut toy, mut giving) = (toy(5, 20 << 20), OutgoingState::at_most(None));
        let pieces = giving.begin(&mut toy, b"").unwrap();
        assert!(giving.begin(&mut toy, b"").is_err());
        // No room: nothing more is taken from the application.
        while giving.round(&mut toy) {}
        assert!(giving.is_going() && toy.given <= (PIECES + 1) * PIECE_BYTES, "{}", toy.given);
        drop(pieces);
        assert!(giving.round(&mut toy) && toy.released && !giving.is_going());
        assert!(giving.begin(&mut toy, b"").is_ok());
    }
}
