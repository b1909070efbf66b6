
-- Several Claims and Ends of one session, while nothing is due: claims of one path that nobody else has or
-- waits for. Their records are read at once, and written at once. Everything else is for the other parts:
-- what the batch did before is written first.
local count = math.floor((#ARGV - 4) / 6)
local batch -- what was read, with the changes since; nil if nothing was

-- packedText returns the text that is packed at a place, and its end; nil if there is none.
local function packedText(text, at)
  local head, low, high = string.byte(text, at, at + 2)
  local n, from = 0, at + 1
  if not high then
    return
  elseif head >= 160 and head <= 191 then
    n = head - 160
  elseif head == 217 then
    n, from = low, at + 2
  elseif head == 218 then
    n, from = low * 256 + high, at + 3
  else
    return
  end
  return string.sub(text, from, from + n - 1), from + n - 1
end

-- heldClaim returns what an End needs of a claim with a vote for one path, as this part packs it; nil for
-- any other. Its numbers stay packed, and are compared and copied as they are: to unpack them costs more
-- than all the rest.
local function heldClaim(text)
  local tail = text and string.sub(text, 1, 4) == '\156\2\194\207' and string.byte(text, 13) == 207 and 22
  if not tail or string.sub(text, tail, tail + 6) ~= '\0\0\0\0\160\0\144' then
    return
  end
  local want, last = packedText(text, tail + 7)
  if not want or last ~= #text or string.sub(want, 1, 3) ~= '\220\0\16' then
    return
  end
  local revision, priority, paths = string.byte(want, 4, 6)
  if not paths or revision > 127 or priority > 127 and priority < 224 or paths ~= 145 then
    return
  end
  local name, stop = packedText(want, 7)
  if name and stop < #want then
    return { since = string.sub(text, 4, 12), revision = revision, want = string.sub(text, tail + 7), name = name }
  end
end

-- readPaths reads the paths of the batch, whose keys begin at the fifth entry. It returns false if that is
-- for the general part.
local function readPaths(b, keys, names)
  local g, missing = redis.pcall('MGET', unpack(keys)), {}
  local due = tonumber(g[3])
  b.floor = tonumber(g[1])
  if not (b.floor and b.floor % 1 == 0 and b.floor >= 0 and due and now >= (tonumber(g[2]) or now + 1) and
      now < due) then
    return false
  end
  b.followed = g[4]
  for i = 5, #keys do
    b.texts[names[i]] = g[i]
    if not g[i] then
      missing[#missing + 1] = keys[i]
    end
  end
  return not missing[1] or redis.pcall('EXISTS', unpack(missing)) == 0 -- MGET passes over other types
end

-- gather reads what the requests from the first on are about; nil if that is for the other parts.
local function gather(first)
  local fields, names, known = { 'e', 'l' }, {}, {}
  local keys = { data .. 'floor', data .. 'last', data .. 'due', data .. 'followed' }
  for k = first, count do
    fields[k - first + 3] = 'c' .. ARGV[6 * k + 1]
  end
  local f = redis.pcall('HMGET', skey, unpack(fields))
  local low = tonumber(f[2])
  if f[1] ~= ARGV[4] or not low then
    return
  end
  local b = { low = low, was = low, claims = {}, held = {}, texts = {}, paths = {}, dirty = {}, set = {}, drop = {} }
  for k = first, count do
    local text, c, name = f[k - first + 3], ARGV[6 * k + 1], ARGV[6 * k + 3]
    b.claims[c] = text
    if tonumber(ARGV[6 * k - 1]) == END then
      b.held[c] = heldClaim(text)
      name = b.held[c] and b.held[c].name or ''
    end
    if name ~= '' and not known[name] then
      keys[#keys + 1] = data .. 'p:' .. name
      names[#keys], known[name] = name, true
    end
  end
  return readPaths(b, keys, names) and b or nil
end

-- pathOf returns the record of a path in the batch; nil if it is damaged, or claims wait for it.
local function pathOf(name)
  local p = batch.paths[name]
  if not p then
    local text = batch.texts[name]
    p = { key = data .. 'p:' .. name, counter = batch.floor, holder = '', id = 0, unsure = 0 }
    local free = text and #text == 14 and string.match(text, '^\149(\207........)\160%z%z\194$')
    if free then
      p.counter = cmsgpack.unpack(free)
    elseif text then
      local ok, end_, waits
      ok, end_, p.counter, p.holder, p.id, p.unsure, waits = pcall(cmsgpack.unpack_limit, text, 5, 1)
      if not (ok and end_ == -1 and string.byte(text) == 149 and waits == false and type(p.counter) == 'number' and
          type(p.unsure) == 'number') then
        return
      end
    end
    if p.counter % 1 ~= 0 or p.counter < 0 or p.unsure % 1 ~= 0 or p.unsure < 0 or
        math.max(p.counter, batch.floor, p.unsure) >= 9007199254740992 then
      return
    end
    batch.paths[name] = p
  end
  return p
end

local nowPacked, sidPacked = cmsgpack.pack(now), cmsgpack.pack(sid)
local replyHead = '\152\1' .. nowPacked .. '\0\0\145\220\0\17'

-- changePath notes that the record of a path is to be written.
local function changePath(p)
  if not p.dirty then
    p.dirty = true
    batch.dirty[#batch.dirty + 1] = p
  end
end

-- hasRoom reports whether the session is certain to have fewer than MAX_CLAIMS claims. Its record has other
-- fields too.
local function hasRoom()
  batch.fields = batch.fields or redis.call('HLEN', skey)
  return batch.fields + #batch.set / 2 < MAX_CLAIMS
end

-- claimMany executes a Claim of the batch; see claimOne.
local function claimMany()
  local n, p = tonumber(id), a2 ~= '' and batch.claims[id] == false and pathOf(a2)
  if not p or p.holder ~= '' or n < batch.low or n < mark or not hasRoom() then
    return
  end
  local b, pack, vote = batch, cmsgpack.pack, p.counter + 1
  local number, unsure, packed = pack(n), p.unsure > now and pack(p.unsure) or '\0', pack(vote)
  local record = '\156\2\194' .. nowPacked .. packed .. '\0\0\0\0\160\0\144' .. pack(a1)
  b.low, b.floor, b.claims[id] = math.max(b.low, mark), math.max(b.floor, vote), record
  b.set[#b.set + 1] = 'c' .. id
  b.set[#b.set + 1] = record
  p.counter, p.holder, p.id = vote, sid, n
  p.record = '\149' .. packed .. sidPacked .. number .. pack(p.unsure) .. '\194'
  changePath(p)
  return replyHead .. number .. '\2\0\160' .. pack(tonumber(a3)) .. packed .. packed .. unsure .. nowPacked ..
    '\194\0\144\194\0\0\144\144\144\194\160'
end

-- endMany executes an End of the batch; see endOne.
local function endMany()
  local n, b, c = tonumber(id), batch, batch.held[id]
  local number = cmsgpack.pack(n)
  local text, tail = c and not b.paths[c.name] and b.texts[c.name], sidPacked .. number .. '\0\194'
  if not text or string.sub(text, 11) ~= tail or string.sub(text, 1, 2) ~= '\149\207' or b.followed then
    return
  end
  local counter, reason = string.sub(text, 2, 10), cmsgpack.pack(tonumber(a1))
  b.low, b.held[id] = math.max(b.low, mark), nil
  if n < b.low then -- nobody may ask for it any more
    b.drop[#b.drop + 1] = 'c' .. id
  else
    b.set[#b.set + 1] = 'c' .. id
    b.set[#b.set + 1] = '\156\3\195' .. c.since .. '\0\0\0\0' .. reason .. '\160' .. counter .. '\144' .. c.want
  end
  local p = { key = data .. 'p:' .. c.name, record = '\149' .. counter .. '\160\0\0\194', holder = '', unsure = 0 }
  b.texts[c.name] = p.record
  changePath(p)
  return replyHead .. number .. '\3' .. reason .. '\160' .. string.char(c.revision) .. '\0' .. counter .. '\0' ..
    c.since .. '\194\0\144\194\0\0\144\144\144\194\160'
end

-- flush writes what the batch changed.
local function flush()
  local b = batch
  batch = nil
  if not b or not b.dirty[1] then
    return
  end
  redis.call('HSET', skey, 'l', string.format('%d', b.low), unpack(b.set))
  delete(b.drop)
  if b.low > b.was then
    delete(sweep(b.was, b.low))
  end
  local texts = { data .. 'floor', string.format('%d', b.floor), data .. 'last', string.format('%d', now) }
  for _, p in ipairs(b.dirty) do
    if p.holder ~= '' then
      texts[#texts + 1] = p.key
      texts[#texts + 1] = p.record
    else
      local rest = math.ceil(math.max(0, p.unsure - now) / 1000)
      redis.call('SET', p.key, p.record, 'PX', string.format('%d', 60000 + rest))
    end
  end
  redis.call('MSET', unpack(texts))
end
