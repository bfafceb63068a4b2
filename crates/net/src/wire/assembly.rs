//! Putting messages together that came in pieces.

use super::datagram::{DatagramSender, MessageFragment};

/// How many messages of one sender are put together at a time: datagrams of a sender overtake each
/// other, but not by so many messages. One more makes the oldest of the sender make room.
const MESSAGES_PER_SENDER_MAX: usize = 8;

/// Messages that came in pieces, in a bounded number of bytes. A message that is not complete when others need
/// the room is lost, as datagrams may be.
#[derive(Debug)]
pub struct MessageAssembly {
    places: Vec<AssemblySlot>,
    bytes_max: usize,
    message_bytes_max: usize,
    /// Bytes that the messages in the making take together.
    bytes: usize,
    /// Grows with each piece: when each place was last used.
    clock: u64,
    /// Messages given up before they were complete.
    given_up: u64,
}

/// The message that a fragment belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct FragmentedMessage {
    sender: u32,
    incarnation: u32,
    number: u32,
}

#[derive(Debug, Default)]
struct AssemblySlot {
    /// Whether a message is in the making here.
    taken: bool,
    of: FragmentedMessage,
    total: usize,
    size: u16,
    buffer: Vec<u8>,
    /// A bit for each piece that is there.
    there: Vec<u64>,
    missing: usize,
    used: u64,
}

impl MessageAssembly {
    /// For messages of at most `message_bytes_max` bytes, all those in the making taking at most
    /// `bytes_max`, or one message if that is more. It holds on to at most twice as much.
    pub fn new(bytes_max: usize, message_bytes_max: usize) -> Self {
        let bytes_max = bytes_max.max(message_bytes_max);
        Self { places: Vec::new(), bytes_max, message_bytes_max, bytes: 0, clock: 0, given_up: 0 }
    }

    /// Messages given up before they were complete: a piece was lost, or too many came at a time.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Adds a piece; says in which place the message lies if that completes it. It stays there until
    /// the next piece is added. A piece of a message over the limit is dropped.
    pub fn add(&mut self, sender: DatagramSender, piece: &MessageFragment<'_>) -> Option<usize> {
        let total = piece.total as usize;
        if total > self.message_bytes_max {
            return None;
        }
        self.clock += 1;
        let DatagramSender { pid, incarnation, .. } = sender;
        let of = FragmentedMessage { sender: pid.0, incarnation, number: piece.number };
        let same =
            |p: &AssemblySlot| p.taken && p.of == of && (p.total, p.size) == (total, piece.size);
        let place = match self.places.iter().position(same) {
            Some(place) => place,
            None => self.begin(of, total, piece.size),
        };
        let p = &mut self.places[place];
        p.used = self.clock;
        let index = usize::from(piece.index);
        let (word, bit) = (index / 64, 1 << (index % 64));
        if p.there[word] & bit != 0 {
            return None;
        }
        p.there[word] |= bit;
        let offset = piece.offset();
        p.buffer[offset..offset + piece.bytes.len()].copy_from_slice(piece.bytes);
        p.missing -= 1;
        if p.missing > 0 {
            return None;
        }
        self.free(place);
        Some(place)
    }

    /// The message that was completed last, in its place.
    pub fn message(&self, place: usize) -> &[u8] {
        let p = &self.places[place];
        &p.buffer[..p.total]
    }

    fn begin(&mut self, of: FragmentedMessage, total: usize, size: u16) -> usize {
        let same_sender = |p: &AssemblySlot| p.of.sender == of.sender;
        if self.places.iter().filter(|p| p.taken && same_sender(p)).count()
            >= MESSAGES_PER_SENDER_MAX
        {
            self.give_up_oldest(same_sender);
        }
        while self.bytes + total > self.bytes_max {
            self.give_up_oldest(|_| true);
        }
        let kept: usize = self.places.iter().map(|p| p.buffer.capacity()).sum();
        if kept + total > 2 * self.bytes_max {
            self.places.iter_mut().filter(|p| !p.taken).for_each(|p| p.buffer = Vec::new());
        }
        let place = self.places.iter().position(|p| !p.taken).unwrap_or(self.places.len());
        if place == self.places.len() {
            self.places.push(AssemblySlot::default());
        }
        let p = &mut self.places[place];
        let pieces = total.div_ceil(usize::from(size));
        p.buffer.clear();
        p.buffer.resize(total, 0);
        p.there.clear();
        p.there.resize(pieces.div_ceil(64), 0);
        (p.taken, p.of, p.total, p.size, p.missing) = (true, of, total, size, pieces);
        self.bytes += total;
        place
    }

    fn give_up_oldest(&mut self, among: impl Fn(&AssemblySlot) -> bool) {
        let taken = (0..).zip(&self.places).filter(|(_, p)| p.taken && among(p));
        if let Some((place, _)) = taken.min_by_key(|(_, p)| p.used) {
            self.given_up += 1;
            self.free(place);
        }
    }

    fn free(&mut self, place: usize) {
        self.places[place].taken = false;
        self.bytes -= self.places[place].total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use amcast_core::Pid;
    use amcast_core::rng::Rng;

    const SENDER: DatagramSender = DatagramSender { cluster: 7, pid: Pid(3), incarnation: 2 };

    fn pieces(number: u32, message: &[u8], size: u16) -> Vec<MessageFragment<'_>> {
        let piece = |(index, bytes)| {
            let total = message.len() as u32;
            MessageFragment { number, total, index, size, bytes }
        };
        (0..).zip(message.chunks(usize::from(size))).map(piece).collect()
    }

    fn bytes(count: usize, seed: u64) -> Vec<u8> {
        let mut rng = Rng::new(seed);
        (0..count).map(|_| rng.word() as u8).collect()
    }

    #[test]
    fn pieces_in_any_order_and_doubled_make_the_message_once() {
        let message = bytes(10_007, 1);
        let mut rng = Rng::new(2);
        let mut assembly = MessageAssembly::new(1 << 20, 1 << 20);
        for round in 0..20 {
            let mut all: Vec<_> = pieces(round, &message, 100);
            all.extend(pieces(round, &message, 100).into_iter().take(40));
            for i in (1..all.len()).rev() {
                all.swap(i, rng.below(i as u64 + 1) as usize);
            }
            let mut made = 0;
            for piece in &all {
                if let Some(place) = assembly.add(SENDER, piece) {
                    assert_eq!(assembly.message(place), message);
                    made += 1;
                }
            }
            assert_eq!(made, 1);
        }
    }

    #[test]
    fn lost_pieces_cost_a_bounded_number_of_bytes() {
        let message = bytes(1_000, 1);
        let mut assembly = MessageAssembly::new(10_000, 1_000);
        for number in 0..1_000 {
            let sender = DatagramSender { pid: Pid(number % 7), ..SENDER };
            for piece in &pieces(number, &message, 100)[1..] {
                assert_eq!(assembly.add(sender, piece), None);
            }
            assert!(assembly.bytes <= 10_000 && assembly.places.len() <= 10);
        }
        assert_eq!(assembly.given_up(), 990);
        let whole = pieces(5_000, &message, 100);
        let made = whole.iter().filter_map(|piece| assembly.add(SENDER, piece)).count();
        assert_eq!(made, 1, "there is room for what is whole");
    }

    #[test]
    fn lives_and_shapes_of_a_message_do_not_mix() {
        let (one, other) = (bytes(200, 1), bytes(200, 2));
        let mut assembly = MessageAssembly::new(10_000, 1_000);
        let later = DatagramSender { incarnation: 3, ..SENDER };
        assert_eq!(assembly.add(SENDER, &pieces(1, &one, 100)[0]), None);
        assert_eq!(assembly.add(later, &pieces(1, &other, 100)[1]), None);
        assert_eq!(assembly.add(SENDER, &pieces(1, &one, 150)[1]), None);
        let place = assembly.add(later, &pieces(1, &other, 100)[0]).unwrap();
        assert_eq!(assembly.message(place), other);
        assert_eq!(assembly.add(SENDER, &pieces(2, &bytes(1_001, 3), 900)[0]), None, "too long");
    }
}
