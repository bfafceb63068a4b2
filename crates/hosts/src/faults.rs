//! Which frames a port of the switch or router drops: those of senders that are cut off from its host, and some
//! of the others at random.
//!
//! The drops are made by a classic BPF program on the port's way out. Classic BPF needs neither a compiler nor
//! netfilter's programs, and one program replaces another in one step.

use std::fmt::Write;
use std::net::Ipv4Addr;

/// Instructions of classic BPF that a program here consists of.
const LOAD_HALF: u16 = 0x28;
const LOAD_WORD: u16 = 0x20;
const JUMP_EQUAL: u16 = 0x15;
const JUMP_NOT_LESS: u16 = 0x35;
const RETURN: u16 = 0x06;

/// The offset of the type in an Ethernet frame, and the type of IPv4.
const ETHERNET_TYPE: u32 = 12;
const IPV4: u32 = 0x0800;
/// The offset of the source address in an Ethernet frame with an IPv4 packet.
const IPV4_SOURCE: u32 = 26;
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
}

impl LinkFaults {
    pub(crate) fn new(hosts: usize, loss_ppm: u32) -> Self {
        Self { cut: vec![vec![false; hosts]; hosts], loss_ppm: vec![loss_ppm; hosts] }
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

    /// Lifts all cuts. The losses remain.
    pub(crate) fn heal(&mut self) {
        self.cut.iter_mut().for_each(|row| row.fill(false));
    }

    /// The program of a receiver's port, in the text form that `tc` reads; none if nothing is dropped.
    pub(crate) fn program(&self, to: usize, address: impl Fn(usize) -> Ipv4Addr) -> Option<String> {
        let senders = (0..self.cut.len()).filter(|&from| self.cut[from][to]);
        let senders: Vec<u32> = senders.map(|from| address(from).to_bits()).collect();
        if senders.is_empty() && self.loss_ppm[to] == 0 {
            return None;
        }
        Some(drop_program(&senders, self.loss_ppm[to]))
    }
}

fn drop_program(senders: &[u32], loss_ppm: u32) -> String {
    let count = senders.len();
    // As many of all random words as there are frames to be lost of a million.
    let threshold = ((u64::from(loss_ppm) << 32) / 1_000_000).min(u64::from(u32::MAX)) as u32;
    let mut program = format!("{},", count + 7);
    let mut push = |code: u16, jump_true: usize, jump_false: usize, value: u32| {
        write!(program, "{code} {jump_true} {jump_false} {value},").expect("memory takes it");
    };
    push(LOAD_HALF, 0, 0, ETHERNET_TYPE);
    push(JUMP_EQUAL, 0, count + 1, IPV4);
    push(LOAD_WORD, 0, 0, IPV4_SOURCE);
    for (i, sender) in senders.iter().enumerate() {
        push(JUMP_EQUAL, count + 1 - i, 0, *sender);
    }
    push(LOAD_WORD, 0, 0, RANDOM);
    push(JUMP_NOT_LESS, 1, 0, threshold);
    push(RETURN, 0, 0, DROP);
    push(RETURN, 0, 0, PASS);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a program as the kernel does, on a frame from this sender and with this random word.
    fn drops(program: &str, sender: u32, random: u32) -> bool {
        let mut instructions = program.trim_end_matches(',').split(',');
        let count: usize = instructions.next().unwrap().parse().unwrap();
        let instructions: Vec<Vec<u32>> = instructions
            .map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect())
            .collect();
        assert_eq!(instructions.len(), count);
        let (mut at, mut word) = (0, 0);
        loop {
            let [code, jump_true, jump_false, value] = instructions[at][..] else { panic!() };
            at += 1;
            match code as u16 {
                LOAD_HALF | LOAD_WORD => {
                    word = match value {
                        ETHERNET_TYPE => IPV4,
                        IPV4_SOURCE => sender,
                        RANDOM => random,
                        _ => panic!("{value}"),
                    };
                }
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
