//! The manifests of Kubernetes: whole, in agreement with each other and with the image, and with
//! the server, which is started with their flags and asked for their probes.
//!
//! They are plain: a chart would have to be rendered by a tool before anything could be checked.

use super::{deb, image::Image};
use crate::place::{Folder, wait_until};
use crate::server::{Executable, free_address};
use crate::{Client, Outcome, passed, process};
use saphyr::{LoadableYamlNode, Yaml};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

const DASHBOARD: &str = "grafana/laneway.json";
const RULES: &str = "prometheus/alerts.yaml";
/// What a pod may take is at least this part of the memory for items (docs/operating.md, "Memory").
const MEMORY_PERCENT_MIN: u64 = 162;

/// Every manifest of a release: those of the repository, and those made of the dashboard and rules.
pub fn manifests() -> Result<Vec<(&'static str, String)>, String> {
    let text = |name: &str| process::read(process::root().join("packaging").join(name));
    Ok(vec![
        ("laneway.yaml", text("kubernetes/laneway.yaml")?),
        ("monitoring.yaml", text("kubernetes/monitoring.yaml")?),
        ("dashboard.yaml", dashboard(&text(DASHBOARD)?)),
        ("alerts.yaml", alerts(&text(RULES)?)),
    ])
}

/// The dashboard as Grafana's sidecar looks for it.
fn dashboard(json: &str) -> String {
    let head = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: laneway-dashboard\n  labels: \
                {app.kubernetes.io/name: laneway, grafana_dashboard: \"1\"}\ndata:\n  \
                laneway.json: |\n";
    format!("{head}{}", indented(json, "    "))
}

/// The alert rules as the Prometheus operator takes them.
fn alerts(rules: &str) -> String {
    let head = "apiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\nmetadata:\n  name: \
                laneway\n  labels: {app.kubernetes.io/name: laneway}\nspec:\n";
    format!("{head}{}", indented(rules, "  "))
}

fn indented(text: &str, by: &str) -> String {
    text.lines().map(|line| format!("{by}{line}\n")).collect()
}

/// Read them all, hold them against each other, the image and the server.
pub fn check(binary: &Path) -> Outcome {
    let texts = manifests()?;
    let set = Set::read(&texts)?;
    set.is_whole()?;
    set.agrees()?;
    set.has_few_rights()?;
    set.is_served(binary)?;
    passed(format!("{} resources, and the server answers their probes", set.documents.len()))
}

/// All documents, each with its file.
struct Set<'t> {
    documents: Vec<(&'static str, Yaml<'t>)>,
}

/// What lies at a path of names and numbers, such as `spec/ports/0/name`.
fn at<'y, 't>(document: &'y Yaml<'t>, path: &str) -> Option<&'y Yaml<'t>> {
    path.split('/').try_fold(document, |node, word| match word.parse() {
        Ok(index) => node.as_sequence_get(index),
        Err(_) => node.as_mapping_get(word),
    })
}

fn text<'y>(document: &'y Yaml<'_>, path: &str) -> Result<&'y str, String> {
    let found = at(document, path).and_then(|node| node.as_str());
    found.ok_or_else(|| format!("there is no text at {path}"))
}

fn number(document: &Yaml<'_>, path: &str) -> Result<u64, String> {
    let found = at(document, path).and_then(|node| node.as_integer());
    let found = found.and_then(|number| number.try_into().ok());
    found.ok_or_else(|| format!("there is no number at {path}"))
}

fn list<'y, 't>(document: &'y Yaml<'t>, path: &str) -> Result<&'y [Yaml<'t>], String> {
    let found = at(document, path).and_then(|node| node.as_sequence());
    found.map(Vec::as_slice).ok_or_else(|| format!("there is no list at {path}"))
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, left: T, right: T) -> Result<(), String> {
    match left == right {
        true => Ok(()),
        false => Err(format!("{what}: {left:?} and {right:?} should be the same")),
    }
}

/// Where a pod's container stands, and the pod.
const POD: &str = "spec/template/spec";
const CONTAINER: &str = "spec/template/spec/containers/0";
const PROBES: [&str; 3] = ["startupProbe", "readinessProbe", "livenessProbe"];
const LABELS: &str = "spec/template/metadata/labels";

impl<'t> Set<'t> {
    fn read(texts: &'t [(&'static str, String)]) -> Result<Set<'t>, String> {
        let mut documents = Vec::new();
        for (name, text) in texts {
            let read = Yaml::load_from_str(text).map_err(|e| format!("{name}: {e}"))?;
            documents.extend(read.into_iter().map(|document| (*name, document)));
        }
        Ok(Set { documents })
    }

    /// The one resource of this kind that carries the name.
    fn one(&self, kind: &str) -> Result<&Yaml<'t>, String> {
        let is_it = |document: &&Yaml| text(document, "kind").is_ok_and(|found| found == kind);
        let found = self.documents.iter().map(|(_, document)| document).find(is_it);
        found.ok_or_else(|| format!("there is no {kind}"))
    }

    /// Each document says what it is and is named; two of a kind have two names.
    fn is_whole(&self) -> Result<(), String> {
        let mut seen = Vec::new();
        for (file, document) in &self.documents {
            let word = |path| text(document, path).map_err(|why| format!("{file}: {why}"));
            word("apiVersion")?;
            let named = (word("kind")?, word("metadata/name")?);
            if seen.contains(&named) {
                return Err(format!("{file}: {named:?} stands there twice"));
            }
            seen.push(named);
        }
        Ok(())
    }

    /// Names and labels that must be the same in several places.
    fn agrees(&self) -> Result<(), String> {
        let (pods, service) = (self.one("StatefulSet")?, self.one("Service")?);
        same("serviceName", text(pods, "spec/serviceName")?, text(service, "metadata/name")?)?;
        let labels = at(pods, LABELS).ok_or("pods have no labels")?;
        for (kind, path) in [
            ("StatefulSet", "spec/selector/matchLabels"),
            ("Service", "spec/selector"),
            ("PodDisruptionBudget", "spec/selector/matchLabels"),
            ("NetworkPolicy", "spec/podSelector/matchLabels"),
        ] {
            same(kind, at(self.one(kind)?, path), Some(labels))?;
        }
        let monitor = self.one("ServiceMonitor")?;
        let of_service = at(service, "metadata/labels");
        same("ServiceMonitor", at(monitor, "spec/selector/matchLabels"), of_service)?;
        let mut ports: Vec<(&str, u64)> = Vec::new();
        for port in list(pods, &format!("{CONTAINER}/ports"))? {
            ports.push((text(port, "name")?, number(port, "containerPort")?));
        }
        let numbers: Vec<u64> = ports.iter().map(|(_, number)| *number).collect();
        let exposed: Vec<u64> = Image::read()?.ports.into_iter().map(u64::from).collect();
        same("ports of the container and of the image", numbers, exposed)?;
        for (at, port) in list(service, "spec/ports")?.iter().enumerate() {
            let it = (text(port, "targetPort")?, number(port, "port")?);
            same("a port of the Service", Some(&it), ports.get(at))?;
        }
        let mut named = vec![text(monitor, "spec/endpoints/0/port")?];
        for probe in PROBES {
            named.push(text(pods, &format!("{CONTAINER}/{probe}/httpGet/port"))?);
        }
        for rule in list(self.one("NetworkPolicy")?, "spec/ingress")? {
            named.push(text(rule, "ports/0/port")?);
        }
        match named.iter().find(|name| !ports.iter().any(|(known, _)| known == *name)) {
            Some(name) => Err(format!("no container has a port called {name}")),
            None => Ok(()),
        }
    }

    /// The pod has the image's user, no rights, and room for its items.
    fn has_few_rights(&self) -> Result<(), String> {
        let pods = self.one("StatefulSet")?;
        let image = format!("laneway:{}", deb::VERSION);
        same("the image", text(pods, &format!("{CONTAINER}/image"))?, &image)?;
        let user = |name: &str| number(pods, &format!("{POD}/securityContext/{name}"));
        let who = format!("{}:{}", user("runAsUser")?, user("runAsGroup")?);
        same("the user", &who, &Image::read()?.user)?;
        for (path, wanted) in [
            (format!("{POD}/automountServiceAccountToken"), false),
            (format!("{POD}/securityContext/runAsNonRoot"), true),
            (format!("{CONTAINER}/securityContext/allowPrivilegeEscalation"), false),
            (format!("{CONTAINER}/securityContext/readOnlyRootFilesystem"), true),
        ] {
            same(&path, at(pods, &path).and_then(|node| node.as_bool()), Some(wanted))?;
        }
        let dropped = text(pods, &format!("{CONTAINER}/securityContext/capabilities/drop/0"))?;
        same("capabilities dropped", dropped, "ALL")
    }

    /// The flags are the server's, and it answers the paths.
    fn is_served(&self, binary: &Path) -> Result<(), String> {
        let pods = self.one("StatefulSet")?;
        let (key, config) = self.configuration(pods)?;
        let folder = Folder::make("package-kubernetes")?;
        let file = folder.file(key);
        process::write(&file, config)?;
        let mount = text(pods, &format!("{CONTAINER}/volumeMounts/0/mountPath"))?;
        let mounted = format!("{mount}/{key}");
        let mut flags = Vec::new();
        for word in list(pods, &format!("{CONTAINER}/args"))? {
            let word = word.as_str().ok_or("an argument is no text")?;
            flags.push(if word == mounted { &file } else { word });
        }
        if flags.first() != Some(&"serve") || !flags.contains(&file.as_str()) {
            return Err(format!("{flags:?}: these serve nothing, or not by {mounted}"));
        }
        self.has_defaults(binary, pods, &flags)?;
        let admin = free_address()?;
        let admin_text = admin.to_string();
        let flags = [&flags[1..], &["--admin", admin_text.as_str()]].concat();
        let server = Executable::named(binary)?.start("package-kubernetes", &flags)?;
        let mut paths = vec![text(self.one("ServiceMonitor")?, "spec/endpoints/0/path")?];
        for probe in PROBES {
            paths.push(text(pods, &format!("{CONTAINER}/{probe}/httpGet/path"))?);
        }
        // A port of clients is open before there is a server to be watched: wait as a pod does.
        let ready = text(pods, &format!("{CONTAINER}/readinessProbe/httpGet/path"))?;
        wait_until("the server is ready", || Ok(answer(admin, ready)? == "200"))?;
        for path in paths {
            same(path, answer(admin, path)?.as_str(), "200")?;
        }
        // A server that answers everything alike would show nothing.
        same("another path", answer(admin, "/none")?.as_str(), "404")?;
        server.stop()
    }

    /// The file that the pods have, its name and text.
    fn configuration(&self, pods: &Yaml<'t>) -> Result<(&str, &str), String> {
        let map = self.one("ConfigMap")?;
        let volume = text(pods, &format!("{POD}/volumes/0/configMap/name"))?;
        same("the volume's ConfigMap", volume, text(map, "metadata/name")?)?;
        let entry = at(map, "data").and_then(|data| data.as_mapping()?.iter().next());
        let entry = entry.and_then(|(key, value)| Some((key.as_str()?, value.as_str()?)));
        entry.ok_or_else(|| "the ConfigMap has no file".into())
    }

    /// Ports, memory and time are those of the configuration that would be in force.
    fn has_defaults(&self, binary: &Path, pods: &Yaml<'t>, flags: &[&str]) -> Result<(), String> {
        let mut command = Command::new(binary);
        let printed = process::said(command.args(flags).arg("--print-config"))?;
        let setting = |name: &str| {
            let mut lines = printed.lines().map(|line| line.trim_start_matches("# "));
            let value = lines.find_map(|line| line.strip_prefix(&format!("{name} = ")));
            let value = value.map(|value| value.split('#').next().unwrap_or_default().trim());
            value.ok_or_else(|| format!("the configuration has no {name}:\n{printed}"))
        };
        let whole = |name: &str| {
            let value = setting(name)?.trim_matches('"');
            value.parse::<u64>().map_err(|e| format!("{name} = {value}: {e}"))
        };
        let port = |index| number(pods, &format!("{CONTAINER}/ports/{index}/containerPort"));
        same("the port", port(0)?, whole("port")?)?;
        let admin = setting("admin")?.trim_matches('"');
        let admin: SocketAddr = admin.parse().map_err(|e| format!("admin = {admin}: {e}"))?;
        same("the admin port", port(1)?, admin.port().into())?;
        let limit = text(pods, &format!("{CONTAINER}/resources/limits/memory"))?;
        let limit = limit.strip_suffix("Mi").and_then(|mib| mib.parse::<u64>().ok());
        let (limit, items) = (limit.ok_or("the limit of memory is no Mi")?, whole("memory-limit")?);
        if limit * 100 < items * MEMORY_PERCENT_MIN {
            return Err(format!("{limit} MiB are too few for {items} MiB of items"));
        }
        let (grace, drain) =
            (number(pods, &format!("{POD}/terminationGracePeriodSeconds"))?, whole("drain-ms")?);
        match drain < grace * 1000 {
            true => Ok(()),
            false => Err(format!("a stop may take {drain} ms, and the pod has {grace} s")),
        }
    }
}

/// The status of what the admin endpoint answers.
fn answer(admin: SocketAddr, path: &str) -> Result<String, String> {
    let mut client = Client::connect(admin)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {admin}\r\nConnection: close\r\n\r\n");
    client.send(request.as_bytes())?;
    let line = client.line()?;
    line.split(' ').nth(1).map(str::to_owned).ok_or_else(|| format!("{path}: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_of_a_dashboard_holds_it_and_a_broken_set_is_refused() {
        let source = |name: &str| process::read(process::root().join("packaging").join(name));
        let json = source(DASHBOARD).expect("it is in the repository");
        let made = dashboard(&json);
        let read = Yaml::load_from_str(&made).expect("it is YAML");
        assert_eq!(text(&read[0], "data/laneway.json"), Ok(json.as_str()));
        let rules = source(RULES).expect("it is in the repository");
        let (made, rules) = (alerts(&rules), Yaml::load_from_str(&rules).expect("it is YAML"));
        let read = Yaml::load_from_str(&made).expect("it is YAML");
        assert!(at(&rules[0], "groups").is_some());
        assert_eq!(at(&read[0], "spec/groups"), at(&rules[0], "groups"));

        let texts = manifests().expect("they are in the repository");
        let set = |from: &str, to: &str| -> Result<(), String> {
            let changed = texts.iter().map(|(name, text)| (*name, text.replacen(from, to, 1)));
            let changed: Vec<_> = changed.collect();
            let set = Set::read(&changed)?;
            set.is_whole().and_then(|()| set.agrees()).and_then(|()| set.has_few_rights())
        };
        assert_eq!(set("", ""), Ok(()));
        for (from, to) in [
            ("kind: ConfigMap\n", ""),
            ("serviceName: laneway", "serviceName: other"),
            ("selector: {app.kubernetes.io/name: laneway}", "selector: {app: laneway}"),
            ("containerPort: 11211", "containerPort: 11212"),
            ("port: 11280, targetPort", "port: 11281, targetPort"),
            ("path: /readyz, port: admin", "path: /readyz, port: adm"),
            ("port: admin, path: /metrics", "port: other, path: /metrics"),
            ("runAsUser: 65532", "runAsUser: 0"),
            ("readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false"),
            ("image: laneway:", "image: laneway:9"),
            ("spec:\n", "spec: [\n"),
        ] {
            assert!(set(from, to).is_err(), "{from} -> {to} is not noticed");
        }
    }
}
