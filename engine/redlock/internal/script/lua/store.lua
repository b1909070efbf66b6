
-- From here on: the general part, for every kind of request.
--
-- Keys, all after the prefix of the data:
--   floor        the highest counter that any path ever had
--   last         the latest time that a request saw
--   due          the lowest score in until; 0 if that is empty
--   until        sorted set: sessions by their end; claims (CLAIM below) by the next end of an ask
--                or of their lapse
--   names        sorted set: sessions in order of their ids
--   followed     the time until which ends are kept; often missing
--   ends         sorted set: the latest ends of claims, as time (16 digits) session "\0" id (16 digits)
--                and packed reason and text
--   s:SESSION    hash: e epoch, n nonce, t TTL, s span, u until, o channel, l low-water mark,
--                b label, and a field c<id> for each claim: see unpackClaim
--   p:PATH       packed: counter, session and id of the holder, unsure, whether claims wait
--   q:PATH       sorted set: MEMBER for each waiting claim, in the order of the queue
--
--   CLAIM = "\1" session "\0" id
--   MEMBER = 1000000-priority (7 digits) ticket (16 digits) session "\0" id (16 digits)
--
-- Records are read once and written at the end. A script fails before its first write or not at
-- all: it has then read and checked every record that it changes. Lua's < on texts depends on the
-- locale of the server, so below compares bytes.

local floor, last
local sessions, paths -- as far as they were read
local touched -- names of paths whose queue or holder changed, or the attributes of one of those
local changed -- claims that a message reports
local due -- claims whose lapse or ask may have ended
local gone -- sessions that ended
local followed, ends -- nil before a claim ends; the ends to add
local writes -- the commands at the end
local reply -- 1 outcome, 2 now, 3 epoch, 4 until, 5 claims, 6 sessions, 7 whether more follow, 8 text
-- A script ends at most so many sessions and asks, the oldest ones, for thousands may expire at
-- once. The rest waits for the next request, unless this one meets some of it: then it starts again
-- with twice as many.
local MOST = 200
local most, ending, more = MOST, {}, false
local AGAIN = 'again'
local format, sub = string.format, string.sub

local function fail(key, why)
  error('LKDATA key "' .. key .. '" ' .. why, 0)
end

local function read(command, key, ...)
  local value = redis.pcall(command, key, ...)
  if type(value) == 'table' and value.err then
    fail(key, 'can not be read by ' .. command .. ': ' .. value.err)
  end
  return value
end

local function write(...)
  writes[#writes + 1] = { ... }
end

-- natural reports whether a value is a whole number that Lua counts exactly.
local function natural(n)
  return type(n) == 'number' and n >= 0 and n <= 9007199254740992 and n % 1 == 0
end

local function digits(n)
  return format('%d', n)
end

-- number reads decimal digits; nothing is 0.
local function number(key, text)
  if not text then
    return 0
  end
  local n = string.match(text, '^%d+$') and tonumber(text)
  if not natural(n) then
    fail(key, 'holds "' .. text .. '" instead of a number')
  end
  return n
end

local function integer(n)
  return type(n) == 'number' and natural(math.abs(n))
end

-- unpackRecord returns an array from its packed text. form has a letter for the kind of each entry:
-- n natural number, i whole number, s text, b boolean, t table.
local function unpackRecord(key, text, form)
  local ok, record, more = pcall(cmsgpack.unpack, text)
  if not ok or type(record) ~= 'table' or more ~= nil or #record ~= #form then
    fail(key, 'holds no record of Lockkeeper')
  end
  for i = 1, #form do
    local kind, v = sub(form, i, i), record[i]
    if not (kind == 'n' and natural(v) or kind == 'i' and integer(v) or kind == 's' and type(v) == 'string' or
        kind == 'b' and type(v) == 'boolean' or kind == 't' and type(v) == 'table') then
      fail(key, 'holds a damaged record: entry ' .. i .. ' is wrong')
    end
  end
  return record
end

-- below is the order of texts by bytes.
local function below(a, b)
  local i = 1
  while true do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then
      return not x or (y and x < y) or false
    end
    if not x then
      return false
    end
    i = i + 1
  end
end

local function touch(c)
  for _, name in ipairs(c.paths) do
    touched[name] = true
  end
end

-- setWant gives c a want. Its entries: 1 revision, 2 priority, 3 paths, 4 ticket, 5 try, 6 steal,
-- 7 after, 8 afterTTL, 9 expected, 10 longest hold, 11 grace, 12 and 13 inside, 14 to 16 label.
local function setWant(c, key, text)
  c.wantText, c.want, c.paths = text, false, {}
  if text ~= '' then
    c.want = unpackRecord(key, text, 'nitnbnnnnnnsnsss')
    c.paths = c.want[3]
    for i, name in ipairs(c.paths) do
      if type(name) ~= 'string' then
        fail(key, 'holds a damaged claim: path ' .. i .. ' is no text')
      end
    end
    if #c.paths == 0 or math.abs(c.want[2]) > MAX_PRIORITY then
      fail(key, 'holds a damaged claim: it has no path, or its priority is out of range')
    end
  end
end

local function session(id)
  local s = sessions[id]
  if s ~= nil then
    return s
  end
  local key = data .. 's:' .. id
  local f = read('HMGET', key, 'e', 'n', 't', 's', 'u', 'o', 'l', 'b')
  if not f[1] then
    if read('EXISTS', key) == 1 then
      fail(key, 'holds a session without an epoch')
    end
    sessions[id] = false
    return false
  end
  s = { id = id, key = key, claims = {}, nonce = f[2] or '', to = f[6] or '' }
  s.epoch, s.ttl, s.span = number(key, f[1]), number(key, f[3]), number(key, f[4])
  s.ends, s.low = number(key, f[5]), number(key, f[7])
  s.label = unpackRecord(key, f[8] or '', 'sss')
  if more and s.ends <= now and not ending[id] then
    error(AGAIN, 0)
  end
  if s.ends == 0 or s.span == 0 then
    fail(key, 'holds a damaged session: its span or end is missing')
  end
  sessions[id] = s
  return s
end

-- forgotten reports whether an ended claim of the session needs no memory any more.
local function forgotten(s, c)
  return c.id < s.low and c.state == ENDED and c.finished
end

local function unpackClaim(s, id, text)
  local key = s.key
  local r = unpackRecord(key, text, 'nbnnnnnnsnts')
  local c = { id = id, s = s, ref = s.id .. '.' .. digits(id), state = r[1], finished = r[2], since = r[3],
    vote = r[4], stated = r[5], lapsed = r[6], lapseEnd = r[7], reason = r[8], text = r[9], counter = r[10],
    relied = 0, asks = {} }
  if c.state == ENDED then
    c.relied, c.lapseEnd = r[7], 0
  end
  for i, a in ipairs(r[11]) do
    if type(a) ~= 'table' or type(a[1]) ~= 'string' or not natural(a[2]) or not natural(a[3]) or
        type(a[4]) ~= 'boolean' or type(a[5]) ~= 'string' or type(a[6]) ~= 'string' or
        type(a[7]) ~= 'string' then
      fail(key, 'holds a damaged claim ' .. digits(id) .. ': ask ' .. i .. ' is wrong')
    end
    c.asks[i] = a
  end
  c.indexed = #c.asks > 0 or c.lapsed ~= 0
  setWant(c, key, r[12])
  if c.state < WAITING or c.state > ENDED or (c.state == HELD) ~= (c.vote > 0) or
      (c.state == ENDED) ~= (c.reason > 0) or c.state ~= ENDED and not c.want then
    fail(key, 'holds a damaged claim ' .. digits(id))
  end
  c.inQueue = c.state == WAITING
  if more and c.indexed and not ending['\1' .. s.id .. '\0' .. digits(id)] and not ending[s.id] then
    local over = c.lapsed ~= 0 and c.lapseEnd <= now
    for _, a in ipairs(c.asks) do
      over = over or a[3] ~= 0 and a[3] <= now
    end
    if over then
      error(AGAIN, 0)
    end
  end
  return c
end

local function claimOf(s, id)
  local c = s.claims[id]
  if c == nil then
    local text = not s.fresh and read('HGET', s.key, 'c' .. digits(id))
    c = text and unpackClaim(s, id, text) or false
    s.claims[id] = c
  end
  if c and (c.dropped or forgotten(s, c)) then
    return false
  end
  return c
end

-- everyClaim returns the claims of the session in order of id, and drops the forgotten ones.
local function everyClaim(s)
  if not s.complete and not s.fresh then
    local f = read('HGETALL', s.key)
    for i = 1, #f, 2 do
      local id = tonumber(string.match(f[i], '^c(%d+)$'))
      if id then
        if s.claims[id] == nil then
          s.claims[id] = unpackClaim(s, id, f[i + 1])
        end
      elseif not string.match(f[i], '^[entsuolb]$') then
        fail(s.key, 'has the foreign field "' .. f[i] .. '"')
      end
    end
  end
  s.complete = true
  local all = {}
  for id, c in pairs(s.claims) do
    if c and forgotten(s, c) then
      c.dropped, c.write = true, true
    elseif c and not c.dropped then
      all[#all + 1] = c
    end
  end
  table.sort(all, function(a, b) return a.id < b.id end)
  return all
end

local function path(name)
  local p = paths[name]
  if p then
    return p
  end
  local key = data .. 'p:' .. name
  local text = read('GET', key)
  p = { name = name, key = key, holder = false, unsure = 0, waits = false }
  if text then
    local r = unpackRecord(key, text, 'nsnnb')
    p.counter, p.unsure, p.waits = r[1], r[4], r[5]
    if r[2] ~= '' then
      local s = session(r[2])
      p.holder = s and claimOf(s, r[3])
      if not p.holder or p.holder.state ~= HELD then
        fail(key, 'names the holder ' .. r[2] .. '.' .. digits(r[3]) .. ', which has no vote')
      end
    end
  end
  paths[name] = p
  return p
end
