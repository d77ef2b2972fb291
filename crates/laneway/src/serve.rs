//! `laneway serve`: from flags as typed to settings that were checked, and the life of the process
//! around the server.

use crate::flags::{self, Asked, Flags};
use crate::logging::{self, Format};
use crate::process::{self, NextUser, PidFile, StopSignal};
use laneway_policy as policy;
use laneway_server::access::client_limits::Rates;
use laneway_server::boot::Server;
use laneway_server::durable::DurableSettings;
use laneway_server::execute::VERSION;
use laneway_server::kernel::Kernel;
use laneway_server::settings::{Binding, Idle, RespSettings, Settings, log_level};
use laneway_server::stats::Question;
use places::{Place, READ_ONLY, places, resp};
use reload::Reloads;
use std::ffi::OsString;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use watchdog::Watchdog;

const MEBIBYTE: u64 = 1 << 20;
/// memcached's defaults: `-m 64 -c 1024 -b 1024 -I 1m -a 0700`.
const MEMORY_BYTES: u64 = 64 * MEBIBYTE;
const CONNECTIONS_MAX: usize = 1024;
const BACKLOG: i32 = 1024;
const ITEM_BYTES_MAX: u64 = MEBIBYTE;
const UNIX_MASK: u32 = 0o700;
/// The least `-I`, as memcached has it.
const ITEM_BYTES_LEAST: u64 = 1024;
/// The most workers by default: beyond it `--workers` has to say so.
const WORKERS_DEFAULT_MAX: usize = 64;
const EPOCH: Duration = Duration::from_secs(1);
const DRAIN: Duration = Duration::from_secs(5);

/// Exit statuses: memcached's for a port in use (71, EX_OSERR), and sysexits' for the rest.
const STATUS_LISTEN: u8 = 71;
const STATUS_SETUP: u8 = 70;
const STATUS_DATA: u8 = 74;

/// Run the server until it is told to stop. Called by the `name` memcached it begins its help as
/// memcached does, which tools look at.
pub fn run(name: &str, args: Vec<OsString>) -> ExitCode {
    let typed = args.clone();
    let flags = match flags::read(args, std::env::vars_os()) {
        Ok(Asked::Serve(flags)) => {
            Flags { names: places::look_up(&flags), handed: activation::expected(), ..*flags }
        }
        Ok(Asked::Help) => {
            if name == "memcached" {
                println!("memcached {VERSION}");
            }
            print!("{}", flags::help());
            return ExitCode::SUCCESS;
        }
        Ok(Asked::Version) => {
            println!("memcached {VERSION}");
            return ExitCode::SUCCESS;
        }
        Ok(Asked::Licence) => {
            println!("Laneway is licensed under the Apache License, Version 2.0.");
            return ExitCode::SUCCESS;
        }
        Err(refused) => return refuse(refused.status, &refused.why),
    };
    if let Some(why) = features::refused(&flags, &laneway_server::built::FEATURES) {
        return refuse(STATUS_LISTEN, &why);
    }
    match checked(&flags) {
        Ok(_) if flags.print_config => match process::find_user(flags.user.as_deref()) {
            Ok(_) => {
                print!("{}", flags::config(&flags));
                ExitCode::SUCCESS
            }
            Err(error) => refuse(STATUS_SETUP, &error),
        },
        Ok((settings, durable, format, admin)) => {
            logging::start(format, log_level(settings.verbosity));
            let status = serve(typed, &flags, settings, durable, admin);
            logging::flush();
            status
        }
        Err(error) => refuse(crate::STATUS_USAGE, &error),
    }
}

/// What a server is started with.
type Checked = (Settings, Option<DurableSettings>, Format, Vec<SocketAddr>);

/// Checked against each other and the machine; an error says where the flag was given, too.
pub fn checked(flags: &Flags) -> Result<Checked, String> {
    let all = settings(flags).and_then(|settings| {
        let durable = tier::settings(flags, settings.policy.design)?;
        let format = Format::named(flags.log_format.as_deref())?;
        let admin = admin::addresses(flags)?;
        admin::check_apart(&admin, &settings)?;
        Ok((settings, durable, format, admin))
    });
    all.map_err(|error| flags::placed(flags, error))
}

/// End because of the command line: a sentence for who typed it.
fn refuse(status: u8, why: &str) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "laneway: {why}"); // nobody may read it
    ExitCode::from(status)
}

/// End because of the world: an event of the log.
fn fail(status: u8, why: &str) -> ExitCode {
    log::error!("{why}");
    ExitCode::from(status)
}

/// A server that is there and serves nobody yet.
struct Prepared {
    server: Server,
    admin: Option<laneway_admin::Running>,
    watchdog: Option<Watchdog>,
    reloads: Reloads,
    sandbox: sandbox::Begun,
    _pid_file: Option<PidFile>,
}

/// An exit status, and why.
type Failed = (u8, String);

fn serve(
    typed: Vec<OsString>,
    flags: &Flags,
    mut settings: Settings,
    durable: Option<DurableSettings>,
    admin: Vec<SocketAddr>,
) -> ExitCode {
    // Before the first thread, and before this process leaves them to another (-d).
    let taken = match activation::take(flags, &mut settings) {
        Ok(taken) => taken,
        Err(error) => return fail(STATUS_LISTEN, &error),
    };
    // The process in the background knows that, also where the file that asks for it is not there
    // any more: somebody waits for its word.
    let is_daemon = flags.daemon || process::is_in_background();
    if is_daemon {
        match process::go_to_background(flags.config.as_deref()) {
            Ok(None) => {}
            Ok(Some(status)) => return ExitCode::from(status),
            Err(error) => return fail(STATUS_SETUP, &error),
        }
    }
    let verbose = settings.verbosity > 0;
    let prepared = match prepare(typed, flags, settings, durable, (admin, taken)) {
        Ok(prepared) => prepared,
        Err((status, error)) => return fail(status, &error),
    };
    let Prepared { server, admin, watchdog, reloads, sandbox, _pid_file } = prepared;
    // Nobody has been served until here.
    let is_half =
        || server.shared().each_domain(|shared| shared.sandbox_is_half.store(true, Relaxed));
    let sandbox = match sandbox.complete(is_half) {
        Ok(told) => told,
        Err(error) => {
            let _ = server.stop(); // what it would say is of less interest
            return fail(STATUS_SETUP, &error);
        }
    };
    // Whoever is told that it serves reads the file of ports next.
    ports::tell(&server);
    if is_daemon {
        logging::flush(); // its stream may lead nowhere from here on
        if let Err(error) = process::tell_ready(verbose) {
            return fail(STATUS_SETUP, &format!("-d: cannot leave the terminal: {error}"));
        }
    }
    // A command that goes to the background says nothing where all is well.
    sandbox.iter().for_each(|told| log::info!("{told}"));
    server.open();
    tell_ready(&server);
    reloads.begin();
    watchdog.iter().for_each(Watchdog::begin);
    until_stop(server, admin)
}

/// Everything that takes more rights than serving does.
fn prepare(
    typed: Vec<OsString>,
    flags: &Flags,
    mut settings: Settings,
    durable: Option<DurableSettings>,
    (admin, taken): (Vec<SocketAddr>, activation::Taken),
) -> Result<Prepared, Failed> {
    let setup = |error: String| (STATUS_SETUP, error);
    let unwatched = |error: std::io::Error| setup(format!("signals cannot be watched: {error}"));
    flags.warnings.iter().for_each(|warning| log::warn!("{warning}"));
    if flags.core_dumps {
        process::allow_core_dumps().map_err(setup)?;
    }
    let signals = StopSignal::watch().map_err(unwatched)?;
    let has_admin = taken.admin.is_some() || flags.admin.is_some();
    limits::keep_to(&mut settings, has_admin, !taken.listeners.is_empty())
        .map_err(|error| (STATUS_LISTEN, error))?;
    let (user, sandbox) = confine(flags, &mut settings).map_err(setup)?;
    if flags.lock_memory
        && let Err(error) = process::lock_memory(user.is_some())
    {
        log::warn!("{error}");
    }
    // Before every thread that may log and must not wait for the log's reader.
    kernel::without_capabilities(&settings.kernel, logging::begin).map_err(setup)?;
    let admin = admin::listen(&admin, taken.admin).map_err(|error| (STATUS_LISTEN, error))?;
    // It answers while a folder is opened, which may take minutes.
    let start = |closed| kernel::without_capabilities(&settings.kernel, || admin::start(closed));
    let admin = admin.map(start).transpose().map_err(setup)?;
    let open = |durable| kernel::without_capabilities(&settings.kernel, || tier::open(durable));
    let opened = durable.map(open).transpose().map_err(|error| (STATUS_DATA, error))?;
    let sockets = socket_files(&settings);
    let server = Server::prepare(settings, opened, taken.listeners);
    let server = server.map_err(|error| (STATUS_LISTEN, error.to_string()))?;
    logging::told_by(server.shared());
    if let Some(user) = user {
        user.take_over(&sockets);
        user.become_it().map_err(setup)?;
        if flags.core_dumps {
            process::allow_core_dumps_again().map_err(setup)?;
        }
    }
    tier::check_backup_folder(flags).map_err(|error| (STATUS_DATA, error))?;
    // A pipe waits for its reader, and is not removed: until then a signal ends the process. A file
    // is written once a signal stops the server instead, which removes it again.
    let waits = flags.pid_file.as_deref().is_some_and(process::is_no_file);
    let told = waits.then(|| pid_file(flags));
    auth::warn(flags, &server);
    tls::warn(&server);
    let shared = server.shared().clone();
    let reloads = reload::prepare(typed, flags, &server).map_err(unwatched)?;
    signals.calls(move || shared.request_stop(), reloads.asks()).map_err(unwatched)?;
    let _pid_file = told.unwrap_or_else(|| pid_file(flags));
    let admin = admin.map(|starting| admin::tell_of(starting, &server));
    let watchdog = watchdog::prepare(&server)
        .map_err(|error| setup(format!("WATCHDOG_USEC: no thread can be made: {error}")))?;
    Ok(Prepared { server, admin, watchdog, reloads, sandbox, _pid_file })
}

/// Serve until somebody asks the server to stop, and stop it.
fn until_stop(server: Server, admin: Option<laneway_admin::Running>) -> ExitCode {
    slow::log_until_stop(server.shared());
    logging::wait_for_nobody();
    manager::stopping();
    log::info!("stopping; requests under way are finished first");
    let stopped = server.stop();
    admin.into_iter().for_each(laneway_admin::Running::stop);
    match stopped {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(STATUS_DATA, &format!("the data folder, at the end: {error}")),
    }
}

/// Find the user to become, who stands in files that a sandbox does not reach; then the sandbox
/// begins.
fn confine(
    flags: &Flags,
    settings: &mut Settings,
) -> Result<(Option<NextUser>, sandbox::Begun), String> {
    Ok((process::find_user(flags.user.as_deref())?, sandbox::begin(flags, settings)?))
}

/// The files of unix sockets that the server makes.
fn socket_files(settings: &Settings) -> Vec<PathBuf> {
    let own = settings.unix.iter().map(|(path, _)| path);
    own.chain(settings.shm.iter().map(|shm| &shm.path)).cloned().collect()
}

/// The file of `-P`, which goes with what is returned.
fn pid_file(flags: &Flags) -> Option<PidFile> {
    let path = flags.pid_file.as_ref()?;
    let written = PidFile::write(path);
    let told =
        |error: &std::io::Error| log::error!("-P {}: cannot be written: {error}", path.display());
    written.inspect_err(told).ok()
}

/// Tell whoever waits for it that the server serves: the log's reader, the service manager.
fn tell_ready(server: &Server) {
    announce(server);
    manager::ready();
}

/// One line, so that whoever started it knows where it listens.
fn announce(server: &Server) {
    let shared = server.shared();
    let settings = &shared.settings;
    let read_only = server.read_only_addresses();
    let mut places = Vec::new();
    for (kind, addresses) in [
        ("", server.addresses()),
        ("resp:", server.resp_addresses()),
        ("tls:", server.tls_addresses()),
        ("resp+tls:", server.tls_resp_addresses()),
    ] {
        places.extend(addresses.iter().map(|address| match read_only.contains(address) {
            true => format!("{READ_ONLY}{kind}{address}"),
            false => format!("{kind}{address}"),
        }));
    }
    places.extend(server.unix_places());
    if let Some(shm) = &settings.shm {
        places.push(format!("shm:{}", shm.path.display()));
    }
    if let Some(rdma) = &settings.rdma {
        let doors = server.rdma_addresses().iter();
        places.extend(doors.map(|address| format!("rdma:{}@{address}", rdma.place)));
    }
    let mut udp: Vec<String> =
        server.queues().iter().map(|queue| format!("udp:{}", queue.address)).collect();
    udp.dedup();
    places.extend(udp);
    if let Some(lane) = &settings.kernel.lane {
        log::info!(
            "GETs at {} are answered in the kernel, from {} MiB of the items",
            lane.interfaces.join(", "),
            lane.items_bytes / MEBIBYTE,
        );
    }
    if let Some(way) = shared.kernel.get().and_then(Kernel::bypass) {
        log::info!("{}", way.told());
    }
    let plan = shared.plan.get();
    let domains = match server.domains() {
        1 => String::new(),
        count => format!(" in {count} NUMA domains"),
    };
    log::info!(
        "laneway {}: ready on {}; {} workers{domains}, design {}, form {}, {} MiB for items",
        env!("CARGO_PKG_VERSION"),
        places.join(", "),
        server.workers(),
        plan.design,
        plan.form,
        settings.memory_bytes * server.domains() as u64 / MEBIBYTE,
    );
    // The same names and values as clients see.
    let told = shared.answer(&Question::Settings, Default::default(), 0); // at any time
    let told = String::from_utf8_lossy(&told).into_owned();
    let pairs = told.lines().filter_map(|line| line.strip_prefix("STAT "));
    let pairs: Vec<String> = pairs.map(|pair| pair.replacen(' ', "=", 1)).collect();
    log::debug!("settings: {}", pairs.join(" "));
}

/// Settings from flags; an error is a sentence that says the way out.
pub fn settings(flags: &Flags) -> Result<Settings, String> {
    let workers = workers(flags)?;
    let policy = policy_settings(flags, workers)?;
    policy.check().map_err(|error| error.to_string())?;
    let memory_bytes = match flags.memory_bytes {
        Some(0) => return Err("-m 0: must be at least 1; leave it out for 64".to_owned()),
        given => given.unwrap_or(MEMORY_BYTES),
    };
    let udp = udp::settings(flags, workers)?;
    let domains = numa::settings(flags, workers)?;
    let memory_of_one = memory_bytes / domains.len().max(1) as u64;
    let has_own = !flags.handed.clients;
    if let (Some(mask), None, true) = (flags.unix_mask, &flags.unix_socket, has_own) {
        return Err(format!(
            "-a {mask:o}: there is no unix socket whose permissions it could be; add -s PATH, or \
             leave it out"
        ));
    }
    let unix_mask = flags.unix_mask.unwrap_or(UNIX_MASK);
    let unix = flags.unix_socket.as_ref().filter(|_| has_own);
    let unix = unix.map(|path| (PathBuf::from(path), unix_mask));
    let auth = auth::settings(flags, udp.is_some())?;
    let memcached = if unix.is_some() || !has_own { Vec::new() } else { places(flags)? };
    let resp = if has_own { resp(flags)? } else { Vec::new() };
    places::check_once(&memcached, &resp)?;
    let tls = tls::settings(flags, &memcached, &resp)?;
    let plain = |places: &[Place]| {
        let plain = places.iter().filter(|place| tls.is_none() || !place.encrypts);
        plain.map(Place::port).collect::<Vec<_>>()
    };
    Ok(Settings {
        auth,
        workers,
        addresses: plain(&memcached),
        unix,
        kernel: kernel::settings(flags, udp.as_ref(), memory_bytes)?,
        udp,
        resp: RespSettings { shared: !flags.no_resp, addresses: plain(&resp) },
        tls,
        binding: binding(flags)?,
        shm: shm::settings(flags, workers)?,
        rdma: rdma::settings(flags, workers)?,
        backlog: flags.backlog.unwrap_or(BACKLOG),
        connections_max: connections(flags)?,
        item_bytes_max: item_bytes_max(flags, memory_of_one)? as usize,
        memory_bytes,
        store_mode: flags.no_evictions,
        huge_pages: flags.large_pages,
        cas: !flags.no_cas,
        flush: !flags.no_flush,
        dump: !flags.no_dump,
        watch: !flags.no_watch && !flags.no_dump, // it tells keys, too
        shutdown: flags.shutdown,
        verbosity: flags.verbose,
        idle_timeout: Duration::from_secs(flags.extended.idle_timeout.unwrap_or(0)),
        idle: idle(flags)?,
        epoch: epoch(flags)?,
        drain: flags.drain_milliseconds.map_or(DRAIN, Duration::from_millis),
        domains,
        secret_seed: hot::seed(),
        slow: slow::setting(flags)?,
        log_keys: flags.log_keys,
        connections_per_address: flags.connections_per_address.unwrap_or(0),
        client_rates: Rates::new(flags.client_rate.unwrap_or(0), flags.client_bytes.unwrap_or(0)),
        sandbox: sandbox::setting(flags)?,
        policy,
    })
}

fn workers(flags: &Flags) -> Result<usize, String> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let workers = flags.workers.unwrap_or(cpus.min(WORKERS_DEFAULT_MAX));
    match (1..=usize::from(policy::units::WORKERS_MAX)).contains(&workers) {
        true => Ok(workers),
        false => Err(format!(
            "-t {workers}: must be from 1 to {}; leave the flag out to have one worker per CPU",
            policy::units::WORKERS_MAX
        )),
    }
}

fn policy_settings(flags: &Flags, workers: usize) -> Result<policy::Settings, String> {
    let defaults = policy::Settings::default();
    let design = named("--design", flags.design.as_deref())?.unwrap_or(defaults.design);
    let workers_number = u16::try_from(workers).unwrap_or(u16::MAX);
    let access = named("--access", flags.access.as_deref())?.unwrap_or(defaults.access);
    Ok(policy::Settings {
        design,
        form: named("--form", flags.form.as_deref())?,
        workers: workers_number,
        percentile: flags.percentile.unwrap_or(defaults.percentile),
        alpha: flags.alpha.unwrap_or(defaults.alpha),
        cost: named("--cost", flags.cost.as_deref())?.unwrap_or(defaults.cost),
        threshold_fixed: flags.threshold.map(policy::ItemBytes),
        slice_bytes: flags.slice.map_or(defaults.slice_bytes, policy::ItemBytes),
        samples_min: flags.samples_min.unwrap_or(defaults.samples_min),
        hysteresis_epochs: flags.hysteresis_epochs.unwrap_or(defaults.hysteresis_epochs),
        workers_handoff: flags.handoff_workers.unwrap_or(defaults.workers_handoff),
        access,
        extra_large: flags.extra_large,
        hot: hot::settings(flags, access, workers_number)?,
    })
}

fn named<N>(flag: &str, name: Option<&str>) -> Result<Option<N>, String>
where
    N: std::str::FromStr,
    N::Err: std::fmt::Display,
{
    let parsed = |name: &str| name.parse::<N>().map_err(|error| format!("{flag} {name}: {error}"));
    name.map(parsed).transpose()
}

fn idle(flags: &Flags) -> Result<Idle, String> {
    match flags.idle.as_deref() {
        None | Some("adaptive") => Ok(Idle::Adaptive),
        Some("spin") => Ok(Idle::Spin),
        Some("block") => Ok(Idle::Block),
        Some(other) => Err(format!(
            "--idle {other}: must be spin, adaptive or block; leave the flag out for adaptive"
        )),
    }
}

fn epoch(flags: &Flags) -> Result<Duration, String> {
    match flags.epoch_milliseconds {
        None => Ok(EPOCH),
        Some(0) => Err("--epoch-ms 0: must be at least 1; leave the flag out for 1000".to_owned()),
        Some(milliseconds) => Ok(Duration::from_millis(milliseconds)),
    }
}

fn connections(flags: &Flags) -> Result<usize, String> {
    match flags.connections {
        Some(0) => Err("-c 0: must be at least 1, or nobody can connect".to_owned()),
        given => Ok(given.unwrap_or(CONNECTIONS_MAX)),
    }
}

fn item_bytes_max(flags: &Flags, memory_bytes: u64) -> Result<u64, String> {
    let bytes = flags.item_bytes_max.unwrap_or(ITEM_BYTES_MAX.min(memory_bytes / 2));
    if bytes < ITEM_BYTES_LEAST {
        return Err(format!("-I {bytes}: must be at least {ITEM_BYTES_LEAST} bytes"));
    }
    if bytes > policy::ITEM_BYTES_MAX.0 {
        return Err(format!("-I {bytes}: must be at most 1g ({} bytes)", policy::ITEM_BYTES_MAX));
    }
    if bytes > memory_bytes / 2 && flags.item_bytes_max.is_some() {
        let half = memory_bytes / 2;
        return Err(format!(
            "-I {bytes}: must be at most half of -m, or of a NUMA domain's part of it ({half} \
             bytes); give more memory with -m"
        ));
    }
    Ok(bytes)
}

/// `-B` and `-S`, which go together as in memcached, but for `-B auto`: there each protocol has a
/// way to say who somebody is.
fn binding(flags: &Flags) -> Result<Binding, String> {
    if flags.sasl && flags.auth_file.is_none() {
        return Err(
            "-S: there are no users; name them in a file (-Y FILE), since those of SASL's \
                    own database are not read"
                .to_owned(),
        );
    }
    match flags.protocol.as_deref() {
        Some("ascii") if flags.sasl => {
            Err("-S: there is no SASL in the text protocol; write -B binary or -B auto, or leave \
                 -S out (-Y is for the text protocol, too)"
                .to_owned())
        }
        Some("ascii") => Ok(Binding::Ascii),
        Some("binary") => Ok(Binding::Binary),
        None if flags.sasl => Ok(Binding::Binary),
        _ => Ok(Binding::Auto),
    }
}

mod activation;
mod admin;
mod auth;
mod features;
mod hot;
mod kernel;
mod limits;
mod manager;
mod memory;
mod numa;
mod places;
mod ports;
mod rdma;
mod reload;
mod sandbox;
mod scrub;
mod shm;
mod slow;
pub mod tier;
mod tls;
mod udp;
mod watchdog;

#[cfg(test)]
mod tests;
