use super::super::request_ring::{Credit, told};
use super::*;
use crate::remote::WINDOW_DATAGRAMS;
use std::collections::BTreeSet;

const BOUNDS: Bounds = Bounds { lanes: 2, window: WINDOW_DATAGRAMS };
const LANE: usize = 1;
const PACKET_BYTES: usize = parts::PACKET_BYTES_MIN;

/// A device's places for datagrams. What finds none is lost, and nobody is told.
#[derive(Default)]
struct Places {
    memory: Vec<Vec<u8>>,
    sources: Vec<Source>,
    /// Where the next come to.
    posted: Vec<usize>,
    /// What was taken and not given back.
    free: Vec<usize>,
    came: VecDeque<Came>,
    nonsense: Vec<usize>,
    lost: u32,
    is_broken: bool,
    /// It does not begin anew.
    refuses: bool,
}

#[derive(Clone, Default)]
struct Twin(Arc<Mutex<Places>>);

impl Twin {
    fn new(places: usize) -> Twin {
        let mut twin = Twin::default();
        twin.with(|all| {
            all.memory = vec![Vec::new(); places];
            all.sources = vec![source(0, 0); places];
        });
        twin.begin_anew().expect("it refuses nothing");
        twin
    }

    fn with<T>(&self, what: impl FnOnce(&mut Places) -> T) -> T {
        what(&mut self.0.lock().expect("nobody panicked with it"))
    }

    fn send(&self, from: Source, immediate: u32, bytes: &[u8]) {
        self.with(|all| {
            let Some(place) = all.posted.pop() else {
                all.lost += 1;
                return;
            };
            (all.memory[place], all.sources[place]) = (bytes.to_vec(), from);
            let (bytes, number) = (bytes.len(), from.number);
            all.came.push_back(Came { place, bytes, immediate, number, lid: None });
        });
    }

    /// A datagram that says nothing beside.
    fn send_nonsense(&self) {
        self.with(|all| all.nonsense.extend(all.posted.pop()));
    }

    fn lost(&self) -> u32 {
        self.with(|all| all.lost)
    }
}

impl Ring for Twin {
    fn poll(&mut self, out: &mut VecDeque<Came>) -> io::Result<()> {
        self.with(|all| {
            out.extend(all.came.drain(..));
            all.free.append(&mut all.nonsense);
            if all.is_broken { Err(io::Error::other("broken")) } else { Ok(()) }
        })
    }

    fn source(&mut self, came: &Came) -> Source {
        self.with(|all| all.sources[came.place])
    }

    fn take(&mut self, came: Came, out: &mut Vec<u8>) {
        self.with(|all| {
            out.extend_from_slice(&all.memory[came.place]);
            all.free.push(came.place);
        });
    }

    fn give_back(&mut self) -> io::Result<()> {
        self.with(|all| all.posted.append(&mut all.free));
        Ok(())
    }

    fn begin_anew(&mut self) -> io::Result<()> {
        self.with(|all| {
            all.came.clear();
            all.nonsense.clear();
            all.free.clear();
            all.posted.clear();
            if all.refuses {
                return Err(io::Error::other("refused"));
            }
            all.posted.extend(0..all.memory.len());
            all.is_broken = false;
            Ok(())
        })
    }
}

fn source(port: u8, number: u32) -> Source {
    Source { port: Port::Global([port; 16]), number }
}

/// A client.
struct Client {
    twin: Twin,
    source: Source,
    credit: Credit,
    serial: u32,
}

impl Client {
    fn new(twin: &Twin, number: u32) -> Client {
        let (source, credit) = (source(number as u8, number), Credit::default());
        Client { twin: twin.clone(), source, credit, serial: 0 }
    }

    /// False: there is no room, and now and then it asks for some.
    fn post(&mut self, message: &[u8]) -> bool {
        let count = parts::count(message.len(), PACKET_BYTES);
        if self.credit.room(&BOUNDS) < count {
            if self.credit.was_full_again() {
                self.ask();
            }
            return false;
        }
        let place = (LANE, self.credit.next);
        for (word, head, bytes) in datagrams(place, &mut self.serial, message, PACKET_BYTES) {
            let head = head.as_ref().map_or(&[][..], |head| &head[..]);
            self.twin.send(self.source, word, &[head, bytes].concat());
            self.credit.posted();
        }
        true
    }

    fn ask(&self) {
        self.twin.send(self.source, request(self.credit.next), b"");
    }
}

/// The server's side of a lane.
struct Server {
    inbox: Inbox<Twin>,
    known: Correspondents,
    /// What was looked at, but for requests.
    others: Vec<(Option<Peer>, Mail)>,
    lost: u32,
}

impl Server {
    /// And clients with the numbers from 1 on.
    fn new(places: usize, clients: u32) -> (Server, Vec<Client>) {
        let twin = Twin::new(places);
        let clients: Vec<Client> = (1..=clients).map(|number| Client::new(&twin, number)).collect();
        let known = clients.iter().map(|client| {
            let peer = Peer { client: client.source.number as u16, generation: 7 };
            (client.source, Arc::new(Correspondent::new(peer, BOUNDS)))
        });
        let known = known.collect();
        let inbox = Inbox::new(twin);
        (Server { inbox, known, others: Vec::new(), lost: 0 }, clients)
    }

    /// Requests that are there, and whose.
    fn take(&mut self) -> Vec<(u16, Vec<u8>)> {
        let (mut room, mut taken) = (Vec::new(), Vec::new());
        loop {
            let start = room.len();
            let Some(opened) = self.inbox.next(LANE, &self.known, &mut room) else { break };
            self.lost += opened.lost;
            match (opened.mail, opened.who) {
                (Mail::Request, Some(who)) => {
                    taken.push((who.peer().client, room[start..].to_vec()));
                }
                (mail, who) => {
                    assert_eq!(room.len(), start, "{mail:?} leaves nothing");
                    self.others.push((who.map(|who| who.peer()), mail));
                }
            }
        }
        self.inbox.give_back();
        taken
    }

    fn who(&self, client: &Client) -> &Arc<Correspondent> {
        &self.known[&client.source]
    }

    /// What a reply says beside, to a client that hears it.
    fn tell(&self, client: &mut Client) {
        client.credit.hear(told(LANE, self.who(client).tell(LANE)));
    }

    fn count(&self, mail: Mail) -> usize {
        self.others.iter().filter(|(_, other)| *other == mail).count()
    }
}

#[test]
fn a_route_says_from_which_port_a_datagram_came() {
    let mut route: Vec<u8> = (0..ROUTE_BYTES as u8).collect();
    let of_v6: [u8; 16] = std::array::from_fn(|at| 8 + at as u8);
    assert_eq!(port_of(&route, false), Port::Global(of_v6));
    route[32..36].copy_from_slice(&[10, 77, 0, 1]);
    let Port::Global(of_v4) = port_of(&route, true) else { panic!("it has an address") };
    assert_eq!(of_v4[10..], [0xff, 0xff, 10, 77, 0, 1]);
    assert!(is_v4(&of_v4) && !is_v4(&of_v6) && of_v4[..10] == [0; 10]);
}

#[test]
fn a_datagram_is_its_senders_and_a_strangers_nobodys() {
    let (mut server, mut clients) = Server::new(16, 2);
    let twin = clients[0].twin.clone();
    assert!(clients[1].post(b"of two") && clients[0].post(b"of one"));
    // The same number at another port, and another number at the same.
    twin.send(source(9, 1), request(1), b"hostile");
    twin.send(source(1, 9), request(1), b"hostile");
    assert_eq!(server.take(), [(2, b"of two".to_vec()), (1, b"of one".to_vec())]);
    assert_eq!(server.others, [(None, Mail::Stranger); 2]);
    assert!(server.who(&clients[0]).is_heard());
}

#[test]
fn a_client_has_its_window_beyond_what_it_was_told_and_no_more() {
    let (mut server, mut clients) = Server::new(64, 1);
    let client = &mut clients[0];
    for round in 0..3 {
        let posted = (0..20).take_while(|_| client.post(b"get a")).count();
        assert_eq!(posted, BOUNDS.window, "{round}");
        assert_eq!(server.take().len(), posted);
        // All of them were taken, but it was not told: the next is not its to send.
        client.twin.send(client.source, request(client.credit.next), b"get b");
        assert!(server.take().is_empty());
        assert_eq!(server.count(Mail::Unwanted), round + 1);
        assert!(server.who(client).is_to_be_told(LANE));
        server.tell(client);
        assert!(!server.who(client).is_to_be_told(LANE));
    }
    // What it sent before is not taken twice, either.
    client.twin.send(client.source, request(0), b"get a");
    assert!(server.take().is_empty());
    assert_eq!((server.count(Mail::Unwanted), server.lost), (4, 0));
}

#[test]
fn what_a_server_replies_is_no_request_to_another() {
    let (mut server, mut clients) = Server::new(64, 1);
    let client = &mut clients[0];
    // What a worker sends whose client has said that its replies go here, in each of its lanes.
    for lane in 0..crate::layout::LANES_MAX - 1 {
        for word in [told(lane, 0), told(lane, 0) | PART] {
            client.twin.send(client.source, word, b"12345678ERROR\r\n");
            assert!(server.take().is_empty(), "{lane}");
        }
        client.twin.send(client.source, told(lane, 0), b"");
        assert!(server.take().is_empty());
        assert!(!server.who(client).is_heard() && !server.who(client).is_to_be_told(LANE));
    }
    assert_eq!(server.count(Mail::Flood), 1, "five of them are enough");
    assert!(client.post(b"get a"));
    assert_eq!(server.take().len(), 1);
}

#[test]
fn numbers_count_through_their_end() {
    let (mut server, mut clients) = Server::new(16, 1);
    let client = &mut clients[0];
    let begin = TOLD_MASK - 3;
    let lane = &server.who(client).lanes[LANE];
    lane.taken.store(begin, Relaxed);
    lane.told.store(begin, Relaxed);
    let mut number = begin;
    for _ in 0..3 {
        for _ in 0..BOUNDS.window {
            client.twin.send(client.source, request(number), b"get a");
            number += 1;
        }
        assert_eq!(server.take().len(), BOUNDS.window);
        assert_eq!(server.who(client).tell(LANE), number & TOLD_MASK);
    }
    assert!(server.others.is_empty());
}

#[test]
fn when_all_of_a_window_was_lost_its_client_asks_and_has_room_again() {
    let (mut server, mut clients) = Server::new(4, 1);
    let client = &mut clients[0];
    (0..4).for_each(|_| client.twin.send(source(9, 9), 0, b"in the way"));
    assert_eq!((0..20).take_while(|_| client.post(b"get a")).count(), BOUNDS.window);
    assert_eq!((server.take().len(), client.twin.lost()), (0, BOUNDS.window as u32));
    let tries = (0..100).position(|_| {
        assert!(!client.post(b"get a"), "nobody has told it anything");
        server.take();
        server.who(client).is_to_be_told(LANE)
    });
    assert!(tries.is_some_and(|tries| tries < 32), "{tries:?}");
    server.tell(client);
    assert_eq!((client.credit.room(&BOUNDS), server.lost), (BOUNDS.window, BOUNDS.window as u32));
    assert!(client.post(b"get b"));
    assert_eq!(server.take(), [(1, b"get b".to_vec())]);
}

#[test]
fn requests_in_parts_are_joined_by_sender() {
    let (mut server, mut clients) = Server::new(16, 2);
    let message = |byte: u8| vec![byte; MESSAGE_BYTES_MAX];
    assert!(clients[0].post(&message(1)) && clients[1].post(&message(2)));
    // As they may come from two ports at a time.
    clients[0].twin.with(|all| all.came.swap(1, 2));
    assert_eq!(server.take(), [(1, message(1)), (2, message(2))]);
    assert_eq!(server.count(Mail::Nothing), 2);
    // Two whole parts are longer than any message.
    assert!(clients[0].post(&[3; 2 * parts::PART_BYTES]));
    assert!(server.take().is_empty());
    assert_eq!(server.count(Mail::Impossible), 1);
    // And a datagram may be, where packets are long.
    clients[1].twin.send(clients[1].source, request(clients[1].credit.next), &[4; 4000]);
    assert!(server.take().is_empty());
    assert_eq!(server.count(Mail::Impossible), 2);
}

#[test]
fn parts_that_say_another_lane_are_thrown_away_and_take_no_memory() {
    let (mut server, mut clients) = Server::new(16, 1);
    let client = &mut clients[0];
    let message = [5; MESSAGE_BYTES_MAX];
    for other in [0, crate::layout::LANES_MAX - 1] {
        for (head, bytes) in parts::cut(1, other, &message) {
            let word = request(client.credit.next) | PART;
            client.twin.send(client.source, word, &[&head[..], bytes].concat());
            client.credit.posted();
        }
    }
    assert!(server.take().is_empty());
    assert_eq!(server.count(Mail::Nothing), 4);
    let lane = &server.who(client).lanes[LANE];
    assert_eq!(format!("{:?}", lane.joiner), format!("{:?}", Mutex::new(Joiner::default())));
    assert!(client.post(&message));
    assert_eq!(server.take(), [(1, message.to_vec())]);
}

#[test]
fn who_asks_while_a_server_is_slow_stays_and_who_does_nothing_else_is_cut_off() {
    let (mut server, clients) = Server::new(16, 1);
    let mut ask = |is_answered: bool| {
        clients[0].ask();
        server.take();
        if is_answered {
            assert!(server.who(&clients[0]).is_to_be_told(LANE));
        }
        server.count(Mail::Flood)
    };
    (0..200).for_each(|_| assert_eq!(ask(false), 0, "it has no answer yet"));
    let floods: Vec<usize> = (0..100).map(|_| ask(true)).collect();
    assert_eq!(floods.iter().position(|floods| *floods > 0), Some(STRIKES_MAX as usize));
    assert_eq!(floods.last(), Some(&1), "it is told once");
}

/// What a client waits for: it repeats a request, by its id, that has no answer.
struct Asking {
    client: Client,
    next: u32,
    waits: BTreeSet<u32>,
    answered: BTreeSet<u32>,
}

impl Asking {
    fn new(client: Client) -> Asking {
        Asking { client, next: 0, waits: BTreeSet::new(), answered: BTreeSet::new() }
    }

    /// One turn: repeat what waits, and ask for something new, of `most` requests.
    fn turn(&mut self, most: u32) {
        let Asking { client, next, waits, .. } = self;
        for id in waits.iter() {
            if !client.post(&id.to_le_bytes()) {
                return;
            }
        }
        while *next < most && client.post(&next.to_le_bytes()) {
            waits.insert(*next);
            *next += 1;
        }
    }

    fn hear(&mut self, request: &[u8]) {
        let id = u32::from_le_bytes(request.try_into().expect("an id"));
        assert!(id < self.next, "it was never asked for");
        self.waits.remove(&id);
        self.answered.insert(id);
    }
}

#[test]
fn what_finds_no_place_is_repeated_until_every_client_has_all_its_answers() {
    const REQUESTS: u32 = 100;
    let (mut server, clients) = Server::new(12, 6);
    let mut clients: Vec<Asking> = clients.into_iter().map(Asking::new).collect();
    let mut state = 1_u32;
    let mut is_heard = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 24 >= 50 // a fifth of the replies is lost, too
    };
    let all = |clients: &[Asking]| {
        clients.iter().all(|asking| asking.answered.len() == REQUESTS as usize)
    };
    let mut turns = 0;
    while !all(&clients) {
        turns += 1;
        assert!(turns < 10_000, "somebody has no room any more");
        clients.iter_mut().for_each(|asking| asking.turn(REQUESTS));
        clients.rotate_left(1); // who comes first finds a place
        for (client, request) in server.take() {
            let of = |asking: &&mut Asking| asking.client.source.number == u32::from(client);
            let asking = clients.iter_mut().find(of).expect("one of them");
            if is_heard() {
                asking.hear(&request);
                server.tell(&mut asking.client);
            }
        }
        for asking in &mut clients {
            if server.who(&asking.client).is_to_be_told(LANE) {
                server.tell(&mut asking.client);
            }
        }
    }
    let lost = clients[0].client.twin.lost();
    assert!(lost > 100 && server.lost > 100 && server.lost <= lost, "{} of {lost}", server.lost);
    assert_eq!(server.count(Mail::Unwanted) + server.count(Mail::Flood), 0, "none is hostile");
}

#[test]
fn who_floods_is_cut_off_and_all_of_the_others_requests_are_answered() {
    const REQUESTS: u32 = 300;
    let (mut server, mut clients) = Server::new(64, 2);
    let hostile = clients.pop().expect("the second");
    let mut honest = Asking::new(clients.pop().expect("the first"));
    let mut turns = 0;
    while honest.answered.len() < REQUESTS as usize {
        turns += 1;
        assert!(turns < 10_000, "nothing of it comes through");
        // Now and then more than there are places, else a few less: far ahead, and old numbers.
        let count = if turns % 5 == 0 { 80 } else { 60 };
        for number in 0..count {
            let number = request(1_000 * (number % 2) + number);
            hostile.twin.send(hostile.source, number, b"get a");
        }
        honest.turn(REQUESTS);
        for (client, request) in server.take() {
            if u32::from(client) == honest.client.source.number {
                honest.hear(&request);
                server.tell(&mut honest.client);
            }
        }
        if server.who(&honest.client).is_to_be_told(LANE) {
            server.tell(&mut honest.client);
        }
        if server.count(Mail::Flood) > 0 {
            server.known.remove(&hostile.source); // the door has closed
        }
    }
    assert_eq!(server.count(Mail::Flood), 1);
    assert!(server.count(Mail::Stranger) > 1000, "and it went on");
    let of_honest = |(who, mail): &(Option<Peer>, Mail)| {
        *mail != Mail::Nothing && who.is_some_and(|who| who.client == 1)
    };
    assert!(!server.others.iter().any(of_honest), "nothing of the other was thrown away");
}

#[test]
fn a_request_takes_as_many_polls_beside_499_idle_clients_as_alone() {
    let polls = |clients: u32| {
        let (mut server, mut clients) = Server::new(1024, clients);
        // Everybody has come, and asked as it came.
        clients.iter().for_each(Client::ask);
        assert!(server.take().is_empty());
        server.inbox.take_polls();
        for _ in 0..100 {
            assert!(clients[0].post(b"get a"));
            assert_eq!(server.take(), [(1, b"get a".to_vec())]);
            server.tell(&mut clients[0]);
        }
        server.inbox.take_polls()
    };
    // One finds it, and one finds nothing more.
    assert_eq!((polls(1), polls(500)), (200, 200));
    // One poll finds what all of them send.
    let (mut server, mut clients) = Server::new(1024, 500);
    assert!(clients.iter_mut().all(|client| client.post(b"get a")));
    assert_eq!((server.take().len(), server.inbox.take_polls()), (500, 2));
}

#[test]
fn places_of_what_is_no_message_come_back_though_nothing_else_comes() {
    let (mut server, mut clients) = Server::new(4, 1);
    for _ in 0..3 {
        (0..8).for_each(|_| clients[0].twin.send_nonsense());
        assert!(!server.inbox.has_some());
        assert!(clients[0].post(b"get a"));
        assert_eq!(server.take(), [(1, b"get a".to_vec())]);
    }
    assert_eq!(clients[0].twin.lost(), 0);
}

#[test]
fn a_ring_that_breaks_begins_anew() {
    let (mut server, mut clients) = Server::new(4, 1);
    let client = &mut clients[0];
    assert!(client.post(b"get a"));
    client.twin.with(|all| all.is_broken = true);
    assert!(server.take().is_empty());
    assert_eq!((server.inbox.take_broken(), server.inbox.take_broken()), (1, 0));
    for _ in 0..2 {
        assert!(client.post(b"get b"));
        assert_eq!(server.take(), [(1, b"get b".to_vec())]);
    }
    assert_eq!(server.lost, 1);
}

#[test]
fn a_ring_that_does_not_begin_anew_is_tried_again_until_it_does() {
    let (mut server, mut clients) = Server::new(4, 1);
    let client = &mut clients[0];
    client.twin.with(|all| (all.is_broken, all.refuses) = (true, true));
    for _ in 0..10 {
        assert!(server.take().is_empty() && !server.inbox.has_some());
    }
    let counts = |inbox: &mut Inbox<Twin>| (inbox.take_broken(), inbox.take_refused());
    assert_eq!(counts(&mut server.inbox), (1, 1), "no look tries again");
    assert!(server.inbox.is_deaf());
    server.inbox.hear_again();
    assert_eq!(counts(&mut server.inbox), (0, 1));
    client.twin.with(|all| all.refuses = false);
    server.inbox.hear_again();
    assert!(!server.inbox.is_deaf());
    assert!(client.post(b"get a"));
    assert_eq!(server.take(), [(1, b"get a".to_vec())]);
    server.inbox.hear_again();
    assert_eq!(counts(&mut server.inbox), (0, 0));
}
