
-- execute does what the request asks, and returns the claims that the reply is about.
local function execute()
  if kind == ATTACH then
    return attach(cmsgpack.unpack(a1))
  elseif kind == RESTORE then
    return restore(cmsgpack.unpack(a1))
  elseif kind == REVOKE then
    return revoke(cmsgpack.unpack(a1))
  elseif kind == LIST then
    return nil
  end
  local s = sessionOf()
  if not s then
    return nil
  elseif kind == RENEW then
    extend(s)
    return lease(s)
  elseif kind == CLAIM then
    return claim(s, a1)
  elseif kind == LEAVE then
    return leave(s)
  elseif kind == ACK then
    return acknowledge(s, cmsgpack.unpack(a1))
  end
  return actOn(s)
end

-- writeClaim notes the record of c, and its next end in the sorted set.
local function writeClaim(c)
  local s = c.s
  local key = '\1' .. s.id .. '\0' .. digits(c.id)
  local nextEnd = math.huge
  if c.state == HELD and not s.gone and not c.dropped then
    for _, a in ipairs(c.asks) do
      nextEnd = a[3] > now and math.min(nextEnd, a[3]) or nextEnd
    end
    if c.lapsed ~= 0 and c.lapseEnd > now then
      nextEnd = math.min(nextEnd, c.lapseEnd)
    end
  end
  if nextEnd < math.huge then
    write('ZADD', data .. 'until', digits(nextEnd), key)
  elseif c.indexed then
    write('ZREM', data .. 'until', key)
  end
  if s.gone then
    return
  elseif c.dropped then
    write('HDEL', s.key, 'c' .. digits(c.id))
  else
    write('HSET', s.key, 'c' .. digits(c.id), cmsgpack.pack({ c.state, c.finished, c.since, c.vote,
      c.stated, c.lapsed, c.state == ENDED and c.relied or c.lapseEnd, c.reason, c.text, c.counter, c.asks,
      c.wantText }))
  end
end

local function writeSession(s)
  write('HSET', s.key, 'e', digits(s.epoch), 'n', s.nonce, 't', digits(s.ttl), 's', digits(s.span),
    'u', digits(s.ends), 'o', s.to, 'l', digits(s.low), 'b', cmsgpack.pack(s.label))
  if s.index then
    write('ZADD', data .. 'until', digits(s.ends), s.id)
    write('ZADD', data .. 'names', '0', s.id)
  end
end

local function writePath(p)
  if p.queue then
    for m in pairs(p.queue.gone) do
      write('ZREM', p.queue.key, m)
    end
    for _, m in ipairs(p.queue.added) do
      write('ZADD', p.queue.key, '0', m)
    end
    p.waits = prefix(p, 1)[1] ~= nil
  end
  if not p.counter then
    return
  end
  local h = p.holder
  local text = cmsgpack.pack({ p.counter, h and h.s.id or '', h and h.id or 0, p.unsure, p.waits })
  if h or p.waits then
    write('SET', p.key, text)
  else
    -- The floor covers the counter of an idle path.
    write('SET', p.key, text, 'PX', digits(60000 + math.ceil(math.max(0, p.unsure - now) / 1000)))
  end
end

local function writeAll()
  for _, s in pairs(gone) do
    write('DEL', s.key)
    write('ZREM', data .. 'until', s.id)
    write('ZREM', data .. 'names', s.id)
    for _, c in pairs(s.claims) do
      if c and c.write then
        writeClaim(c)
      end
    end
  end
  for _, s in pairs(sessions) do
    if s and s.write then
      writeSession(s)
    end
    for _, c in pairs(s and s.claims or {}) do
      if c and c.write then
        writeClaim(c)
      end
    end
  end
  for _, p in pairs(paths) do
    if p.write then
      writePath(p)
    end
  end
  for _, m in ipairs(ends) do
    write('ZADD', data .. 'ends', '0', m)
  end
  if ends[1] then
    write('ZREMRANGEBYRANK', data .. 'ends', '0', digits(-MAX_ENDS - 1))
    write('PEXPIRE', data .. 'ends', '60000')
  end
  write('SET', data .. 'floor', digits(floor))
  write('SET', data .. 'last', digits(now))
end

-- run executes the request, and notes what to write and to publish.
local function run()
  sessions, paths, touched, changed, due, gone, writes, ending = {}, {}, {}, {}, {}, {}, {}, {}
  followed, ends = nil, {}
  reply, more = { DONE, now, 0, 0, {}, {}, false, '' }, false
  floor = number(data .. 'floor', read('GET', data .. 'floor'))
  last = number(data .. 'last', read('GET', data .. 'last'))
  if now < last then
    turnBack()
  end
  expire()
  settle()
  local about = execute() or {}
  settle()
  local described = #reply[5] > 0 -- a refused claim that may not wait
  for i, c in ipairs(about) do
    if not described then
      reply[5][i] = describe(c, kind == ATTACH or kind == RESTORE)
    end
    if kind ~= REVOKE then
      changed[c] = nil
    end
  end
  if kind == LIST then
    local list = cmsgpack.unpack(a1)
    listSessions(list[1], list[2], list[3])
    if list[4] then
      listEnds(list[3])
    end
  end
  local messages = {}
  for c in pairs(changed) do
    local message = { c.s.to, c.s.id, c.s.epoch, now, describe(c) }
    messages[#messages + 1] = { channel .. c.s.to, cmsgpack.pack(message) }
  end
  writeAll()
  for _, m in ipairs(messages) do
    write('PUBLISH', m[1], m[2])
  end
  return cmsgpack.pack(reply)
end

-- general executes any request.
local function general()
  local ok, result
  most = MOST
  repeat
    ok, result = pcall(run)
    most = most * 2
  until ok or result ~= AGAIN
  if not ok then
    result = type(result) == 'table' and result.err or tostring(result)
    if sub(result, 1, 7) ~= 'LKDATA ' then
      result = 'LKDATA the records are damaged: ' .. result
    end
    return redis.error_reply((string.gsub(result, '[\r\n]', ' ')))
  end
  for i = 1, #writes do
    redis.call(unpack(writes[i]))
  end
  local first = redis.call('ZRANGE', data .. 'until', 0, 0, 'WITHSCORES')
  redis.call('SET', data .. 'due', digits(tonumber(first[2]) or 0))
  return result
end
