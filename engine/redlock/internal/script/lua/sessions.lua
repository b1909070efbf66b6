
local function refuse(outcome, text)
  reply[1], reply[8] = outcome, text or ''
end

-- extend gives the session its whole TTL.
local function extend(s)
  if now + s.ttl >= s.ends then
    s.ends, s.span = now + s.ttl, s.ttl
  end
  s.write, s.index = true, true
end

-- lease sets the reply to Attach, Renew and Restore.
local function lease(s)
  reply[4] = s.ends
  return everyClaim(s)
end

-- setLow changes the low-water mark, and drops claims that are forgotten. Some may stay until the
-- next request that reads every claim; but a mark that falls must not bring one back.
local function setLow(s, low)
  if low < s.low or low >= s.low + 1000 then
    s.low = math.max(s.low, low)
    everyClaim(s)
  elseif low - low % 8 > s.low - s.low % 8 then
    local fields = {}
    for id = s.low - s.low % 8, low - 1 do
      local c = s.claims[id]
      if c and c.state == ENDED and c.finished then
        c.dropped, c.write = true, true
      elseif c == nil and not s.fresh and not s.complete then
        fields[#fields + 1] = 'c' .. digits(id)
      end
    end
    for i, text in ipairs(fields[1] and read('HMGET', s.key, unpack(fields)) or {}) do
      if text and sub(text, 1, 3) == '\156\3\195' then -- ended, as the session asked
        write('HDEL', s.key, fields[i])
      end
    end
  end
  s.low, s.write = low, true
end

-- adopt takes over the epoch of a key whose attach the server missed.
local function adopt(s, newEpoch)
  if newEpoch > s.epoch then
    s.epoch, s.nonce, s.write = newEpoch, '', true
    if s.low > 0 then
      setLow(s, 0)
    end
  end
end

local function raiseLow(s, low)
  if low > s.low then
    setLow(s, low)
  end
end

-- sessionOf returns the session that the request may act for, or sets the refusal.
local function sessionOf()
  local s = session(sid)
  if not s then
    return refuse(NO_SESSION)
  end
  if s.epoch > epoch then
    reply[3] = s.epoch
    return refuse(OTHER_EPOCH)
  end
  adopt(s, epoch)
  raiseLow(s, mark)
  return s
end

local function open(id)
  local s = { id = id, key = data .. 's:' .. id, claims = {}, nonce = '', to = '', fresh = true, epoch = 0,
    ttl = 0, span = 0, ends = 0, low = 0, label = { '', '', '' }, write = true, index = true }
  read('ZSCORE', data .. 'names', id) -- that it can be written
  sessions[id] = s
  return s
end

-- forget removes the record of a session whose claims have ended.
local function forget(s)
  read('ZSCORE', data .. 'names', s.id) -- that it can be written
  s.gone, gone[s.id] = s, s
  sessions[s.id] = false
end

local function lapse(c, reason)
  if c.state == WAITING then
    finish(c, reason)
    c.finished = true
  elseif c.state == HELD and c.lapsed == 0 then
    c.lapsed, c.lapseEnd, c.write = reason, c.s.ends, true
    if c.stated ~= 0 and reason ~= EXPIRED then
      c.lapseEnd = math.min(c.lapseEnd, c.stated)
    end
    due[c] = true
  end
end

local function attach(a)
  local newEpoch, nonce, ttl, to, named = a[1], a[2], a[3], a[4], {}
  if newEpoch <= epoch then
    return refuse(DIFFERS, 'the new epoch is not above the old one')
  end
  local s = session(sid)
  local repeated = s and s.epoch == newEpoch and (s.nonce == nonce or s.nonce == '')
  if s and s.epoch > epoch and not repeated then
    reply[3] = s.epoch
    return refuse(OTHER_EPOCH)
  end
  s = s or open(sid)
  reply[3] = s.epoch -- 0: it is new
  s.epoch, s.nonce, s.ttl, s.to, s.label = newEpoch, nonce, ttl, to, { a[7], a[8], a[9] }
  extend(s)
  if repeated then
    return lease(s)
  end
  everyClaim(s)
  setLow(s, mark)
  for _, l in ipairs(a[6]) do
    local c = claimOf(s, l[1])
    if c and c.state ~= ENDED then
      lapse(c, l[2])
    end
  end
  for _, id in ipairs(a[5]) do
    named[id] = true
  end
  for _, c in ipairs(everyClaim(s)) do
    if c.state == ENDED and not named[c.id] then
      makeSure(c)
    elseif c.lapsed == 0 and not named[c.id] then
      finish(c, SUPERSEDED)
    end
  end
  return lease(s)
end

local function leave(s)
  for _, c in ipairs(everyClaim(s)) do
    if c.state ~= ENDED then
      finish(c, RELEASED)
    end
    makeSure(c)
    changed[c] = nil
  end
  forget(s)
end

local function acknowledge(s, acks)
  for _, ack in ipairs(acks) do
    local c = claimOf(s, ack[1])
    for _, a in ipairs(c and c.asks or {}) do
      if a[3] == ack[2] and not a[4] then
        a[4], c.write = true, true
      end
    end
  end
end

-- expire ends the sessions whose time is over, and finds claims whose time may be.
local function expire()
  local list = read('ZRANGEBYSCORE', data .. 'until', '-inf', digits(now), 'LIMIT', 0, most)
  for _, m in ipairs(list) do
    ending[m] = true
  end
  more = #list == most
  for _, m in ipairs(list) do
    local id, n = string.match(m, '^\1(.*)%z(%d+)$')
    local s = session(id or m)
    if id then
      local c = s and claimOf(s, tonumber(n))
      if c and c.state == HELD then
        due[c], c.write = true, true
        touch(c)
      else
        write('ZREM', data .. 'until', m)
      end
    elseif not s then
      fail(data .. 'until', 'names the session ' .. m .. ', which does not exist')
    elseif s.ends > now then
      s.index = true
    else
      for _, c in ipairs(everyClaim(s)) do
        if c.state ~= ENDED then
          finish(c, EXPIRED)
        end
      end
      forget(s)
    end
  end
end

-- turnBack limits what is left of each session after the clock went back.
local function turnBack()
  for _, m in ipairs(read('ZRANGE', data .. 'until', 0, -1)) do
    local s = sub(m, 1, 1) ~= '\1' and session(m)
    if s then
      s.ends, s.write, s.index = math.min(s.ends, now + s.span), true, true
      for _, c in ipairs(everyClaim(s)) do
        for _, a in ipairs(c.asks) do
          a[3] = math.min(a[3], s.ends)
        end
        c.lapseEnd = math.min(c.lapseEnd, s.ends)
        if c.indexed then
          c.write = true
          touch(c)
        end
      end
    end
  end
end
