//! Which frames a port of the switch or router drops: those of senders that are cut off from its host, those to TCP ports that
//! are closed, and some of the others at random.
//!
//! The drops are made by a classic BPF program on the port's way out. Classic BPF needs neither a compiler nor
//! netfilter's programs, and one program replaces another in one step.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::ops::RangeInclusive;

/// Instructions of classic BPF that a program here consists of.
const LOAD_HALF: u16 = 0x28;
const LOAD_WORD: u16 = 0x20;
const LOAD_BYTE: u16 = 0x30;
/// Of the byte at an offset the lower half, times four, into the index.
const LOAD_INDEX: u16 = 0xb1;
/// At an offset from the index.
const LOAD_HALF_INDEXED: u16 = 0x48;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_GREATER: u16 = 0x25;
const JUMP_NOT_LESS: u16 = 0x35;
const RETURN: u16 = 0x06;

/// The offset of the type in an Ethernet frame, and the type of IPv4.
const ETHERNET_TYPE: u32 = 12;
const IPV4: u32 = 0x0800;
/// The offset of the source address in an Ethernet frame with an IPv4 packet.
const IPV4_SOURCE: u32 = 26;
/// The offsets of the header of such a packet, and of its protocol; and that of the port to which a TCP segment goes, from the
/// length of the header on.
const IPV4_HEADER: u32 = 14;
const IPV4_PROTOCOL: u32 = 23;
const TCP: u32 = 6;
const TCP_TARGET: u32 = 16;
/// The pseudo-offset at which the kernel gives a random word.
const RANDOM: u32 = 0xffff_f038;

/// The results of the program: drop the frame, or leave the decision to the next filter, of which there is none.
const DROP: u32 = 2;
const PASS: u32 = u32::MAX;

/// The most hosts of a lab: a jump of classic BPF passes at most 255 instructions, one a sender.
pub(crate) const HOSTS_MAX: usize = 200;

/// The faults of a lab's links, from host to host.
#[derive(Debug)]
pub(crate) struct LinkFaults {
    /// By sender, then receiver: whether frames are dropped.
    cut: Vec<Vec<bool>>,
    /// By receiver: how many of a million frames are lost.
    pub(crate) loss_ppm: Vec<u32>,
    /// By receiver: TCP ports at which nothing arrives.
    closed: Vec<Option<RangeInclusive<u16>>>,
}

impl LinkFaults {
    pub(crate) fn new(hosts: usize, loss_ppm: u32) -> Self {
        let (cut, closed) = (vec![vec![false; hosts]; hosts], vec![None; hosts]);
        Self { cut, loss_ppm: vec![loss_ppm; hosts], closed }
    }

    pub(crate) fn cut(&mut self, from: usize, to: usize) {
        self.cut[from][to] = true;
    }

    /// Cuts hosts of different sides off from each other. Hosts of no side are one more side.
    ///
    /// # Panics
    /// If a host is named twice, or there is none of its number.
    pub(crate) fn partition(&mut self, sides: &[&[usize]]) {
        let mut named = vec![false; self.cut.len()];
        for &host in sides.iter().copied().flatten() {
            let hosts = named.len();
            assert!(host < hosts, "there are {hosts} hosts, and no host {host}");
            assert!(!named[host], "host {host} is named twice in {sides:?}");
            named[host] = true;
        }
        let side = |host: usize| sides.iter().position(|side| side.contains(&host));
        for from in 0..self.cut.len() {
            for to in 0..self.cut.len() {
                self.cut[from][to] |= side(from) != side(to);
            }
        }
    }

    /// Closes TCP ports of a receiver, in place of those that were closed before.
    pub(crate) fn close(&mut self, to: usize, ports: RangeInclusive<u16>) {
        self.closed[to] = Some(ports);
    }

    /// Lifts all cuts, and opens all ports. The losses remain.
    pub(crate) fn heal(&mut self) {
        self.cut.iter_mut().for_each(|row| row.fill(false));
        self.closed.fill(None);
    }

    /// The program of a receiver's port, in the text form that `tc` reads; none if nothing is dropped.
    pub(crate) fn program(&self, to: usize, address: impl Fn(usize) -> Ipv4Addr) -> Option<String> {
        let senders = (0..self.cut.len()).filter(|&from| self.cut[from][to]);
        let senders: Vec<u32> = senders.map(|from| address(from).to_bits()).collect();
        let closed = self.closed[to].as_ref();
        if senders.is_empty() && closed.is_none() && self.loss_ppm[to] == 0 {
            return None;
        }
        Some(drop_program(&senders, closed, self.loss_ppm[to]))
    }
}

fn drop_program(senders: &[u32], closed: Option<&RangeInclusive<u16>>, loss_ppm: u32) -> String {
    // As many of all random words as there are frames to be lost of a million.
    let threshold = ((u64::from(loss_ppm) << 32) / 1_000_000).min(u64::from(u32::MAX)) as u32;
    let by_port = if closed.is_some() { 6 } else { 0 };
    // Where the parts of the program begin.
    let by_sender = 2 + by_port;
    let by_chance = by_sender + 1 + senders.len();
    let (drop, pass) = (by_chance + 2, by_chance + 3);
    let mut program = format!("{},", pass + 1);
    let mut at = 0;
    let mut push = |code: u16, if_true: usize, if_false: usize, value: u32| {
        at += 1;
        // Jumps are relative to the next instruction, and 0 means that one.
        let [if_true, if_false] = [if_true, if_false].map(|target| target.saturating_sub(at));
        write!(program, "{code} {if_true} {if_false} {value},").expect("memory takes it");
    };
    push(LOAD_HALF, 0, 0, ETHERNET_TYPE);
    push(JUMP_EQUAL, 0, by_chance, IPV4);
    if let Some(ports) = closed {
        push(LOAD_BYTE, 0, 0, IPV4_PROTOCOL);
        push(JUMP_EQUAL, 0, by_sender, TCP);
        push(LOAD_INDEX, 0, 0, IPV4_HEADER);
        push(LOAD_HALF_INDEXED, 0, 0, TCP_TARGET);
        push(JUMP_NOT_LESS, 0, by_sender, u32::from(*ports.start()));
        push(JUMP_GREATER, by_sender, drop, u32::from(*ports.end()));
    }
    push(LOAD_WORD, 0, 0, IPV4_SOURCE);
    for sender in senders {
        push(JUMP_EQUAL, drop, 0, *sender);
    }
    push(LOAD_WORD, 0, 0, RANDOM);
    push(JUMP_NOT_LESS, pass, 0, threshold);
    push(RETURN, 0, 0, DROP);
    push(RETURN, 0, 0, PASS);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame with an IPv4 packet of 20 bytes of header.
    #[derive(Clone, Copy)]
    struct TestFrame {
        sender: u32,
        protocol: u32,
        port: u32,
    }

    /// Runs a program as the kernel does, on a frame from this sender and with this random word.
    fn drops(program: &str, sender: u32, random: u32) -> bool {
        drops_frame(program, TestFrame { sender, protocol: TCP, port: 0 }, random)
    }

    fn drops_frame(program: &str, frame: TestFrame, random: u32) -> bool {
        let mut instructions = program.trim_end_matches(',').split(',');
        let count: usize = instructions.next().unwrap().parse().unwrap();
        let instructions: Vec<Vec<u32>> = instructions
            .map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect())
            .collect();
        assert_eq!(instructions.len(), count);
        let (mut at, mut word, mut index) = (0, 0, 0);
        loop {
            let [code, jump_true, jump_false, value] = instructions[at][..] else { panic!() };
            at += 1;
            match code as u16 {
                LOAD_HALF | LOAD_WORD => {
                    word = match value {
                        ETHERNET_TYPE => IPV4,
                        IPV4_SOURCE => frame.sender,
                        RANDOM => random,
                        _ => panic!("{value}"),
                    };
                }
                LOAD_BYTE if value == IPV4_PROTOCOL => word = frame.protocol,
                LOAD_INDEX if value == IPV4_HEADER => index = 20,
                // Behind the Ethernet frame's 14 bytes and the packet's 20, and the port that it comes from.
                LOAD_HALF_INDEXED if index + value == 14 + 20 + 2 => word = frame.port,
                JUMP_GREATER => at += if word > value { jump_true } else { jump_false } as usize,
                JUMP_EQUAL => at += if word == value { jump_true } else { jump_false } as usize,
                JUMP_NOT_LESS => at += if word >= value { jump_true } else { jump_false } as usize,
                RETURN => return value == DROP,
                _ => panic!("{code}"),
            }
        }
    }

    fn address(host: usize) -> Ipv4Addr {
        Ipv4Addr::from_bits(100 + host as u32)
    }

    #[test]
    fn a_cut_drops_one_sender_at_one_receiver() {
        let mut faults = LinkFaults::new(HOSTS_MAX, 0);
        assert_eq!(faults.program(1, address), None);
        (0..HOSTS_MAX).filter(|from| from % 2 == 0).for_each(|from| faults.cut(from, 1));
        let program = faults.program(1, address).unwrap();
        for from in 0..HOSTS_MAX {
            assert_eq!(drops(&program, address(from).to_bits(), 0), from % 2 == 0, "{from}");
        }
        assert_eq!(faults.program(0, address), None, "the other way is open");
        faults.heal();
        assert_eq!(faults.program(1, address), None);
    }

    #[test]
    fn tcp_ports_that_are_closed_at_one_receiver_are_closed_for_all_senders() {
        let mut faults = LinkFaults::new(4, 0);
        faults.close(2, 7000..=7009);
        faults.cut(3, 2);
        let program = faults.program(2, address).unwrap();
        let of = |host, protocol, port| {
            let frame = TestFrame { sender: address(host).to_bits(), protocol, port };
            drops_frame(&program, frame, 0)
        };
        for (port, is_closed) in [(6999, false), (7000, true), (7009, true), (7010, false)] {
            assert_eq!(of(0, TCP, port), is_closed, "{port}");
            assert!(!of(0, 17, port), "it is no TCP");
            assert!(of(3, TCP, port) && of(3, 17, port), "it is cut off");
        }
        assert_eq!(faults.program(1, address), None);
        faults.heal();
        assert_eq!(faults.program(2, address), None);
    }

    #[test]
    fn a_partition_separates_sides_and_the_rest_is_one() {
        let mut faults = LinkFaults::new(5, 0);
        faults.partition(&[&[0, 1], &[2]]);
        let apart = [(0, 2), (0, 3), (2, 1), (2, 4), (4, 0)];
        assert!(apart.iter().all(|&(from, to)| faults.cut[from][to]));
        assert!([(0, 1), (3, 4), (2, 2)].iter().all(|&(from, to)| !faults.cut[from][to]));
    }

    #[test]
    fn a_partition_of_hosts_that_are_not_there_or_on_two_sides_cuts_nothing() {
        for (sides, why) in [
            (&[&[0, 7][..]][..], "there are 4 hosts, and no host 7"),
            (&[&[0, 1][..], &[1, 2][..]][..], "host 1 is named twice"),
        ] {
            let mut faults = LinkFaults::new(4, 0);
            let cut = std::panic::AssertUnwindSafe(|| faults.partition(sides));
            let panic = std::panic::catch_unwind(cut).expect_err("it makes no sense");
            let told = panic.downcast_ref::<String>().expect("a sentence");
            assert!(told.contains(why), "{told}");
            assert!(faults.cut.iter().flatten().all(|cut| !cut));
        }
    }

    #[test]
    fn a_loss_drops_its_share_of_all_random_words() {
        let mut faults = LinkFaults::new(2, 250_000);
        faults.cut(0, 1);
        let program = faults.program(1, address).unwrap();
        let lost = |random| drops(&program, address(1).to_bits(), random);
        assert!(lost(0) && lost((1 << 30) - 1) && !lost(1 << 30) && !lost(u32::MAX));
        assert!(drops(&program, address(0).to_bits(), u32::MAX), "the cut holds beside it");
    }
}
