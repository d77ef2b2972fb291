# dalli in both of its protocols against a server. usage: ruby main.rb PORT
require "dalli"
require "logger"

Dalli.logger = Logger.new(File::NULL)
$checks = 0

def same(what, got, wanted)
  $checks += 1
  got == wanted or abort "#{what}: #{got.inspect[0, 80]}, and not #{wanted.inspect[0, 80]}"
end

def values(client)
  same("get of nothing", client.get("none"), nil)
  same("set", !!client.set("k", "text", 100), true)
  same("get", client.get("k"), "text")
  same("add of what is there", !!client.add("k", "other"), false)
  same("add", !!client.add("added", "other"), true)
  same("replace of nothing", [0, nil, false].include?(client.replace("none", "other")), true)
  same("replace", !!client.replace("k", "new", 0, raw: true), true)
  same("append", !!client.append("k", "!"), true)
  same("prepend", !!client.prepend("k", "?"), true)
  same("get", client.get("k", raw: true), "?new!")
  same("cas", !!client.cas("k", 0, raw: true) { |held| "#{held} swapped" }, true)
  same("get", client.get("k", raw: true), "?new! swapped")
  stolen = client.cas("k", 0, raw: true) { |_| client.set("k", "mine", 0, raw: true) && "late" }
  same("cas of an older item", !!stolen, false)
  same("touch", !!client.touch("k", 100), true)
  same("get", client.get("k", raw: true), "mine")
  same("delete", !!client.delete("k"), true)
  same("delete of nothing", !!client.delete("k"), false)
  same("incr of nothing", client.incr("n", 5, 0, 10), 10)
  same("incr", client.incr("n", 5), 15)
  same("decr", client.decr("n", 20), 0)
end

def many(client)
  wanted = (0...300).to_h { |number| ["many#{number}", "value #{number}"] }
  client.multi { wanted.each { |key, value| client.set(key, value) } }
  same("get of many", client.get_multi(*wanted.keys, "none"), wanted)
end

def large(client)
  value = Random.new(1).bytes(768_000)
  same("set of a large value", !!client.set("large", value, 0, raw: true), true)
  same("get of a large value", client.get("large", raw: true), value)
  taken = begin
    client.set("too-large", Random.new(1).bytes(2_000_000), 0, raw: true)
  rescue Dalli::DalliError
    nil
  end
  same("set of what is too large", !!taken, false)
  same("get behind it", client.get("added"), "other")
end

%i[binary meta].each do |protocol|
  # Its own limit of 1 MiB is raised, so that the server is asked.
  options = { protocol: protocol, value_max_bytes: 16_000_000, socket_timeout: 10 }
  client = Dalli::Client.new("127.0.0.1:#{ARGV[0]}", options)
  same("flush_all", client.flush.all?, true)
  values(client)
  many(client)
  large(client)
  same("version", client.version.values.all?, true)
  client.close
end
puts "dalli #{Dalli::VERSION} (binary, meta): #{$checks} checks"
